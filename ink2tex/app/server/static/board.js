// The sheet: strokes in sheet coordinates, drawn through a view (scale and shift), with undo and redo.

const PEN = 2.6;
const ERASER = 12;

export class Board {
  #canvas; #context; #view = { scale: 1, x: 0, y: 0 };
  #strokes = []; #past = []; #future = []; #current = null; #pointer = null; #wiped = null;
  #penSeen = 0; #frame = 0; #lit = [];
  erasing = false;
  picture = null; // { image, crop: {x, y, width, height} } in pixels of the picture

  // changed: strokes were added or removed; started: the pen touched the sheet
  constructor(canvas, { changed, started }) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.changed = changed;
    this.started = started;
    for (const [name, handler] of [["pointerdown", this.#down], ["pointermove", this.#move],
      ["pointerup", this.#up], ["pointercancel", this.#cancel]]) {
      canvas.addEventListener(name, (event) => handler.call(this, event));
    }
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  get strokes() { return this.#strokes; }
  get canUndo() { return this.#past.length > 0; }
  get canRedo() { return this.#future.length > 0; }

  set(strokes) { this.#change(strokes); }
  clear() { if (this.#strokes.length) this.#change([]); this.#view = { scale: 1, x: 0, y: 0 }; this.redraw(); }
  undo() { this.#step(this.#past, this.#future); }
  redo() { this.#step(this.#future, this.#past); }

  #change(strokes) {
    this.#past.push(this.#strokes);
    this.#future = [];
    this.#strokes = strokes;
    this.#lit = [];
    this.redraw();
    this.changed();
  }

  #step(from, to) {
    if (!from.length) return;
    to.push(this.#strokes);
    this.#strokes = from.pop();
    this.#lit = [];
    this.redraw();
    this.changed();
  }

  light(boxes) { this.#lit = boxes; this.redraw(); }

  fit() {
    const points = this.#strokes.flat();
    if (!points.length) { this.#view = { scale: 1, x: 0, y: 0 }; this.redraw(); return; }
    const [left, top, right, bottom] = bounds(points);
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const scale = Math.min(3, (width - 40) / Math.max(right - left, 1), (height - 40) / Math.max(bottom - top, 1));
    this.#view = { scale, x: (width - scale * (left + right)) / 2, y: (height - scale * (top + bottom)) / 2 };
    this.redraw();
  }

  #place(event) {
    const box = this.#canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const view = this.picture ? this.#pictureView() : this.#view;
    return [round((x - view.x) / view.scale), round((y - view.y) / view.scale)];
  }

  // A palm is not a pen: while a pen is in use fingers do not write, and only one pointer writes at a time.
  #isPalm(event) {
    if (event.pointerType === "pen") this.#penSeen = event.timeStamp;
    const penInUse = this.#penSeen && event.timeStamp - this.#penSeen < 3000;
    return event.pointerType === "touch" && (penInUse || Math.max(event.width, event.height) > 80);
  }

  #down(event) {
    if (event.button !== 0 || this.#pointer !== null || this.#isPalm(event)) return;
    event.preventDefault();
    this.#canvas.focus({ preventScroll: true });
    this.#pointer = event.pointerId;
    try { this.#canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone already */ }
    const place = this.#place(event);
    this.started();
    this.#lit = [];
    if (this.picture) this.#current = [place];
    else if (this.erasing) { this.#wiped = new Set(); this.#wipe(place); }
    else this.#current = [place];
    this.redraw();
  }

  #move(event) {
    if (event.pointerType === "pen") this.#penSeen = event.timeStamp;
    if (event.pointerId !== this.#pointer) return;
    const coalesced = event.getCoalescedEvents?.() ?? [];
    for (const one of coalesced.length ? coalesced : [event]) {
      const place = this.#place(one);
      if (this.#wiped) this.#wipe(place);
      else if (this.#current) {
        const last = this.#current.at(-1);
        if (last[0] !== place[0] || last[1] !== place[1]) this.#current.push(place);
      }
    }
    if (this.picture && this.#current) this.#frameCrop();
    this.redraw();
  }

  #up(event) {
    if (event.pointerId !== this.#pointer) return;
    this.#pointer = null;
    const stroke = this.#current, wiped = this.#wiped;
    this.#current = this.#wiped = null;
    if (this.picture) { this.redraw(); return; }
    if (wiped) {
      if (wiped.size) this.#change(this.#strokes.filter((one) => !wiped.has(one)));
      else this.changed();
    } else if (stroke) this.#change([...this.#strokes, stroke]);
  }

  #cancel(event) {
    if (event.pointerId !== this.#pointer) return;
    this.#pointer = this.#current = this.#wiped = null;
    this.redraw();
    this.changed();
  }

  #wipe([x, y]) {
    const near = ERASER / this.#view.scale;
    for (const stroke of this.#strokes) {
      if (stroke.some((point, i) => distance(x, y, point, stroke[i + 1] ?? point) < near)) this.#wiped.add(stroke);
    }
  }

  #frameCrop() {
    const [left, top, right, bottom] = bounds([this.#current[0], this.#current.at(-1)]);
    const { image } = this.picture;
    const x = clamp(left, 0, image.width), y = clamp(top, 0, image.height);
    const crop = { x, y, width: clamp(right, 0, image.width) - x, height: clamp(bottom, 0, image.height) - y };
    if (crop.width > 4 && crop.height > 4) this.picture.crop = crop;
  }

  #pictureView() {
    const { image } = this.picture;
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const scale = Math.min(width / image.width, height / image.height);
    return { scale, x: (width - scale * image.width) / 2, y: (height - scale * image.height) / 2 };
  }

  redraw() {
    if (!this.#frame) this.#frame = requestAnimationFrame(() => { this.#frame = 0; this.#draw(); });
  }

  #draw() {
    const canvas = this.#canvas, context = this.#context, ratio = devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    const colours = getComputedStyle(document.documentElement);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, height);
    const view = this.picture ? this.#pictureView() : this.#view;
    context.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, ratio * view.x, ratio * view.y);
    if (this.picture) {
      const { image, crop } = this.picture;
      context.globalAlpha = 0.35;
      context.drawImage(image, 0, 0);
      context.globalAlpha = 1;
      context.drawImage(image, crop.x, crop.y, crop.width, crop.height, crop.x, crop.y, crop.width, crop.height);
      context.strokeStyle = colours.getPropertyValue("--accent");
      context.lineWidth = 2 / view.scale;
      context.strokeRect(crop.x, crop.y, crop.width, crop.height);
    }
    context.fillStyle = colours.getPropertyValue("--light");
    for (const [left, top, right, bottom] of this.#lit) {
      const margin = 4 / view.scale;
      context.fillRect(left - margin, top - margin, right - left + 2 * margin, bottom - top + 2 * margin);
    }
    if (this.picture) return;
    context.strokeStyle = context.fillStyle = colours.getPropertyValue("--ink");
    context.lineWidth = PEN / view.scale;
    context.lineCap = context.lineJoin = "round";
    for (const stroke of this.#strokes) {
      context.globalAlpha = this.#wiped?.has(stroke) ? 0.2 : 1;
      trace(context, stroke, PEN / view.scale);
    }
    context.globalAlpha = 1;
    if (this.#current) trace(context, this.#current, PEN / view.scale);
  }
}

// Through the midpoints, with the points as handles: smooth without adding anything.
function trace(context, stroke, pen) {
  context.beginPath();
  if (stroke.length === 1) {
    context.arc(stroke[0][0], stroke[0][1], pen / 2, 0, 7);
    context.fill();
    return;
  }
  context.moveTo(...stroke[0]);
  for (let i = 1; i < stroke.length - 1; i++) {
    const [x, y] = stroke[i], [u, v] = stroke[i + 1];
    context.quadraticCurveTo(x, y, (x + u) / 2, (y + v) / 2);
  }
  context.lineTo(...stroke.at(-1));
  context.stroke();
}

function bounds(points) {
  let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
  for (const [x, y] of points) {
    left = Math.min(left, x); right = Math.max(right, x);
    top = Math.min(top, y); bottom = Math.max(bottom, y);
  }
  return [left, top, right, bottom];
}

function distance(x, y, [ax, ay], [bx, by]) {
  const dx = bx - ax, dy = by - ay, length = dx * dx + dy * dy;
  const t = length ? clamp(((x - ax) * dx + (y - ay) * dy) / length, 0, 1) : 0;
  return Math.hypot(x - ax - t * dx, y - ay - t * dy);
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const round = (value) => Math.round(value * 100) / 100;
