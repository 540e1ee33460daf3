// The page: what happens when somebody writes, chooses, copies.

import { readPicture, readStrokes, setToken, toMathml } from "./api.js";
import { Board } from "./board.js";
import { History, toInkml, toZip } from "./history.js";
import { match, toElement } from "./typeset.js";

const REST = 300; // milliseconds after which the pen rests
const PICTURE_SIDE = 2400; // larger pictures are shrunk before they travel
const $ = (id) => document.getElementById(id);

const history = new History();
const board = new Board($("canvas"), { changed: drawingChanged, started: () => stop() });
let typing = 0, edited = null; // LaTeX changed by hand, and its MathML once the server has made it
let timer = 0, request = null, answer = null, drawing = newId(), shift = [0, 0];

function newId() { return `ink-${Date.now().toString(36)}-${Math.floor(Math.random() * 1e6).toString(36)}`; }

function stop() {
  clearTimeout(timer);
  request?.abort();
  request = null;
}

function say(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

function drawingChanged() {
  stop();
  $("undo").disabled = !board.canUndo;
  $("redo").disabled = !board.canRedo;
  if (board.picture) return;
  if (!board.strokes.length) { show(null); say("Nothing written yet."); return; }
  timer = setTimeout(() => {
    shift = [0, 0];
    recognise((signal) => readStrokes(board.strokes, signal));
  }, REST);
}

async function recognise(ask) {
  stop();
  const mine = request = new AbortController();
  say("Reading…");
  try {
    const found = await ask(mine.signal);
    if (mine !== request) return;
    request = null;
    show(found);
    say(["Read.", ...found.warnings.map(sentence)].join(" "));
  } catch (error) {
    if (mine !== request || error.name === "AbortError") return;
    request = null;
    $("login").hidden = error.code !== "unauthorized";
    say(error.message, true);
    if (error.retry && error.code === "busy") timer = setTimeout(() => recognise(ask), error.retry * 1000);
  }
}

function show(found) {
  answer = found;
  stopTyping();
  $("latex").value = found?.latex ?? "";
  $("confidence").value = found?.confidence ?? 0;
  $("percent").textContent = found ? percent(found.confidence) : "–";
  typeset();
  $("alternatives").replaceChildren(...(found?.alternatives ?? []).map((other) => {
    const button = document.createElement("button");
    const sure = document.createElement("small");
    button.type = "button";
    button.setAttribute("aria-label", `${other.latex}, ${percent(other.probability)}`);
    sure.textContent = percent(other.probability);
    button.append(toElement(other.mathml) ?? other.latex, sure);
    button.addEventListener("click", () => choose(other));
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
const percent = (value) => value < 0.01 && value > 0 ? "< 1 %" : `${Math.round(100 * value)} %`;

// The chosen reading and the one it replaces change places.
function choose(other) {
  const { latex, mathml, tokens, confidence } = answer;
  const same = other.tokens.length === tokens.length;
  show({
    ...answer, latex: other.latex, mathml: other.mathml, tokens: other.tokens, confidence: other.probability,
    boxes: same ? answer.boxes : null,
    alternatives: answer.alternatives.map((one) => one.latex === other.latex
      ? { latex, mathml, tokens, probability: confidence } : one),
  });
  say(`Chosen: ${other.latex}`);
  keep(true);
}

function stopTyping() {
  clearTimeout(typing);
  edited?.request.abort();
  edited = null;
}

// The MathML of what stands in the field: the answer's own, or that of a correction.
function mathml() {
  const latex = $("latex").value.trim();
  if (latex === (answer?.latex ?? "")) return Promise.resolve(answer?.mathml ?? null);
  if (edited?.latex !== latex) {
    edited?.request.abort();
    const request = new AbortController();
    edited = { latex, request, mathml: toMathml(latex, request.signal) };
  }
  return edited.mathml;
}

async function latexTyped() {
  const latex = $("latex").value.trim();
  try {
    const made = latex ? await mathml() : null;
    if (latex !== $("latex").value.trim()) return;
    typeset(made);
    say(latex === answer?.latex ? "Read." : "Changed by hand.");
  } catch (error) {
    if (error.name === "AbortError" || latex !== $("latex").value.trim()) return;
    edited = null; // ask again the next time
    typeset(null);
    say(error.message, true);
  }
}

function typeset(made = answer?.mathml) {
  const math = toElement(made);
  $("typeset").replaceChildren(...(math ? [math] : []));
  const empty = !$("latex").value.trim();
  for (const button of document.querySelectorAll("[data-copy], #keep")) button.disabled = empty;
  if (!math || !answer?.boxes || made !== answer.mathml) return;
  for (const [element, tokens] of match(math, answer.tokens) ?? []) {
    const boxes = tokens.map((i) => answer.boxes[i]).filter(Boolean)
      .map(([l, t, r, b]) => [l + shift[0], t + shift[1], r + shift[0], b + shift[1]]);
    if (!boxes.length) continue;
    element.classList.add("symbol");
    element.setAttribute("tabindex", "0");
    const on = (event) => {
      event.stopPropagation(); // a fraction is lit by its bar, not by what stands in it
      element.classList.add("lit");
      board.light(boxes);
      $("canvas").dataset.lit = JSON.stringify(boxes);
    };
    const off = () => {
      element.classList.remove("lit");
      board.light([]);
      delete $("canvas").dataset.lit;
    };
    element.addEventListener("pointerover", on);
    element.addEventListener("focus", on);
    element.addEventListener("pointerout", off);
    element.addEventListener("blur", off);
  }
}

function keep(accepted) {
  const latex = $("latex").value.trim();
  if (!latex) return;
  const strokes = board.picture ? [] : board.strokes;
  history.put({ id: drawing, time: Date.now(), latex, strokes, accepted });
  showHistory();
}

function showHistory() {
  const { entries } = history;
  $("export").disabled = !entries.some((entry) => entry.accepted && entry.strokes.length);
  $("forget").disabled = !entries.length;
  $("history").replaceChildren(...entries.map((entry) => {
    const item = document.createElement("li");
    const code = document.createElement("code");
    code.textContent = entry.latex;
    item.append(code, entry.accepted ? "✓" : "");
    const add = (text, action) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", `${text}: ${entry.latex}`);
      button.addEventListener("click", action);
      item.append(button);
    };
    if (entry.strokes.length) add("Open", () => { leavePicture(); drawing = entry.id; board.set(entry.strokes); board.fit(); });
    if (entry.strokes.length) add("InkML", () => download(new Blob([toInkml(entry)], { type: "application/inkml+xml" }), `${entry.id}.inkml`));
    add("Forget", () => { history.remove(entry.id); showHistory(); });
    return item;
  }));
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function copy(kind, button) {
  const latex = $("latex").value.trim();
  let text = kind === "dollars" ? `$${latex}$` : latex;
  if (kind === "mathml") {
    try {
      text = await mathml();
    } catch (error) {
      edited = null;
      if (error.name !== "AbortError") say(error.message, true);
      return;
    }
    if (!text) { say("This has no MathML; copy the LaTeX.", true); return; }
  }
  try {
    await navigator.clipboard.writeText(text);
    say(`Copied ${button.textContent.replace("Copy ", "")}.`);
    keep(true);
  } catch {
    $("latex").select();
    say("The browser does not let this page copy; the text is selected, press Ctrl+C.", true);
  }
}

async function openPicture(file) {
  if (!file) return;
  stop();
  try {
    const image = await createImageBitmap(file);
    board.picture = { image, crop: { x: 0, y: 0, width: image.width, height: image.height } };
  } catch {
    say("This file is not a picture that the browser can open; give a PNG or a JPEG.", true);
    return;
  }
  drawing = newId();
  $("crop").hidden = false;
  show(null);
  board.redraw();
  say("Draw a frame around the expression, or read the whole picture.");
  $("read").focus();
}

async function readCrop() {
  const { image, crop } = board.picture;
  const scale = Math.min(1, PICTURE_SIDE / Math.max(crop.width, crop.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(crop.width * scale));
  canvas.height = Math.max(1, Math.round(crop.height * scale));
  canvas.getContext("2d").drawImage(image, crop.x, crop.y, crop.width, crop.height, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  recognise(async (signal) => {
    const found = await readPicture(blob, signal);
    shift = [crop.x, crop.y];
    found.boxes = found.boxes?.map((box) => box && box.map((value) => value / scale)) ?? null;
    return found;
  });
}

function leavePicture() {
  board.picture = null;
  $("crop").hidden = true;
  board.redraw();
}

const toggleErase = () => {
  board.erasing = !board.erasing;
  $("erase").setAttribute("aria-pressed", String(board.erasing));
};

const actions = {
  undo: () => board.undo(),
  redo: () => board.redo(),
  erase: toggleErase,
  fit: () => board.fit(),
  clear: () => {
    if (answer && !board.picture) keep(false);
    leavePicture();
    drawing = newId();
    board.clear();
    if (board.erasing) toggleErase();
    drawingChanged();
  },
  choose: () => $("file").click(),
  camera: () => $("photo").click(),
  read: readCrop,
  whole: () => {
    const { image } = board.picture;
    board.picture.crop = { x: 0, y: 0, width: image.width, height: image.height };
    board.redraw();
    readCrop();
  },
  back: () => { leavePicture(); drawing = newId(); drawingChanged(); },
  keep: () => { keep(true); say("Kept."); },
  export: () => {
    const kept = history.entries.filter((entry) => entry.accepted && entry.strokes.length);
    download(toZip(kept.map((entry) => [`${entry.id}.inkml`, toInkml(entry)])), "handwriting.zip");
  },
  forget: () => { history.clear(); showHistory(); },
  theme: () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    setTheme(dark ? "light" : "dark");
    localStorage.setItem("ink2tex-theme", root.dataset.theme);
  },
};
for (const [id, action] of Object.entries(actions)) $(id).addEventListener("click", action);
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copy(button.dataset.copy, button));
}
for (const id of ["file", "photo"]) {
  $(id).addEventListener("change", (event) => { openPicture(event.target.files[0]); event.target.value = ""; });
}

$("latex").addEventListener("input", () => {
  clearTimeout(typing);
  typeset(null);
  typing = setTimeout(latexTyped, REST);
});

document.addEventListener("paste", (event) => {
  const file = [...(event.clipboardData?.files ?? [])].find((one) => one.type.startsWith("image/"));
  if (file) { event.preventDefault(); openPicture(file); }
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => { event.preventDefault(); openPicture(event.dataTransfer.files[0]); });
document.addEventListener("keydown", (event) => {
  if (event.target.matches("textarea, input")) return;
  const key = event.key.toLowerCase(), command = event.ctrlKey || event.metaKey;
  if (command && key === "z") { event.preventDefault(); event.shiftKey ? board.redo() : board.undo(); }
  else if (command && key === "y") { event.preventDefault(); board.redo(); }
  else if (!command && !event.altKey && key === "e") toggleErase();
  else if (!command && !event.altKey && key === "f") board.fit();
});
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken($("token").value);
  $("login").hidden = true;
  drawingChanged();
});

function setTheme(name) {
  if (name === "light" || name === "dark") document.documentElement.dataset.theme = name;
  board.redraw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => board.redraw());
setTheme(localStorage.getItem("ink2tex-theme"));
showHistory();
