// The last expressions, in this browser's storage, and their export as InkML.

const KEY = "ink2tex-history";
const MOST = 50;

export class History {
  entries = [];

  constructor() {
    try {
      const kept = JSON.parse(localStorage.getItem(KEY) ?? "[]");
      if (Array.isArray(kept)) this.entries = kept.filter((entry) => typeof entry?.latex === "string");
    } catch { /* damaged or forbidden: begin anew */ }
  }

  // One entry for each drawing: a later reading of the same drawing takes the place of the earlier.
  put(entry) {
    const old = this.entries.find((one) => one.id === entry.id);
    const accepted = entry.accepted || Boolean(old?.accepted && old.latex === entry.latex);
    this.entries = [{ ...entry, accepted }, ...this.entries.filter((one) => one !== old)].slice(0, MOST);
    this.#save();
  }

  remove(id) { this.entries = this.entries.filter((one) => one.id !== id); this.#save(); }
  clear() { this.entries = []; this.#save(); }

  #save() {
    while (true) {
      try { localStorage.setItem(KEY, JSON.stringify(this.entries)); return; } catch {
        if (!this.entries.length) return;
        this.entries = this.entries.slice(0, -1); // storage is full: the oldest goes
      }
    }
  }
}

export function toInkml({ id, latex, strokes }) {
  const traces = strokes.map((stroke, i) => `<trace id="${i}">${stroke.map(([x, y]) => `${x} ${y}`).join(", ")}</trace>`);
  return `<?xml version="1.0" encoding="UTF-8"?>
<ink xmlns="http://www.w3.org/2003/InkML">
<traceFormat><channel name="X" type="decimal"/><channel name="Y" type="decimal"/></traceFormat>
<annotation type="UI">${escaped(id)}</annotation>
<annotation type="truth">$${escaped(latex)}$</annotation>
${traces.join("\n")}
</ink>
`;
}

const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

// A zip archive whose files are stored as they are.
export function toZip(files) {
  const parts = [], directory = [];
  let offset = 0;
  for (const [name, text] of files) {
    const data = new TextEncoder().encode(text), label = new TextEncoder().encode(name);
    const head = [20, 0x800, 0, 0, 0x21, [crc32(data)], [data.length], [data.length], label.length, 0];
    const local = record([[0x04034b50], ...head]);
    directory.push(record([[0x02014b50], 20, ...head, 0, 0, 0, [0], [offset]]), label);
    parts.push(local, label, data);
    offset += local.length + label.length + data.length;
  }
  const size = directory.reduce((sum, part) => sum + part.length, 0);
  const end = record([[0x06054b50], 0, 0, files.length, files.length, [size], [offset], 0]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}

// Numbers in little endian: two bytes, or four for those in brackets.
function record(fields) {
  const bytes = [];
  for (const field of fields) {
    const value = Array.isArray(field) ? field[0] : field;
    for (let i = 0; i < (Array.isArray(field) ? 4 : 2); i++) bytes.push((value >>> (8 * i)) & 255);
  }
  return new Uint8Array(bytes);
}

function crc32(data) {
  let crc = -1;
  for (const byte of data) {
    crc ^= byte;
    for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}
