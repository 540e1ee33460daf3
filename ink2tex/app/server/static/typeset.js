// MathML from the server into the page, and which of its symbols stand for which tokens.

const SPACE = "http://www.w3.org/1998/Math/MathML";
const KNOWN = new Set(["math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup",
  "msubsup", "munder", "mover", "munderover", "mstyle", "mpadded", "mtable", "mtr", "mtd"]);
const ATTRIBUTES = new Set(["display", "displaystyle", "stretchy", "fence", "form", "mathvariant", "movablelimits",
  "largeop", "linethickness", "separator", "symmetric", "lspace", "rspace", "width"]);

export function toElement(mathml) {
  if (!mathml) return null;
  const parsed = new DOMParser().parseFromString(mathml, "application/xml").documentElement;
  return parsed.localName === "math" ? copy(parsed) : null;
}

function copy(node) {
  if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data);
  if (node.nodeType !== Node.ELEMENT_NODE || !KNOWN.has(node.localName)) return document.createTextNode("");
  const element = document.createElementNS(SPACE, node.localName);
  for (const { name, value } of node.attributes) if (ATTRIBUTES.has(name)) element.setAttribute(name, value);
  for (const child of node.childNodes) element.append(copy(child));
  return element;
}

// Pairs [element, indices of tokens] in the order of the LaTeX, or null if the two cannot be matched.
export function match(math, tokens) {
  const inked = inkedTokens(tokens);
  const pairs = [];
  let next = 0;
  const take = (element, count) => { pairs.push([element, inked.slice(next, next + count)]); next += count; };
  const walk = (element) => {
    const name = element.localName, children = [...element.children];
    if (name === "mn") take(element, element.textContent.length);
    else if (name === "mi" || name === "mo" || name === "mtext") { if (element.textContent.trim()) take(element, 1); }
    else {
      if (name === "mfrac" || name === "msqrt" || name === "mroot") take(element, 1);
      for (const child of name === "mroot" ? children.reverse() : children) walk(child);
    }
  };
  walk(math);
  return next === inked.length ? pairs : null;
}

function inkedTokens(tokens) {
  const without = new Set(["{", "}", "^", "_", "\\limits"]);
  const inked = [];
  let depth = 0, root = -1; // inside the index of a root brackets leave no ink
  tokens.forEach((token, i) => {
    if (token === "{") depth++;
    if (token === "}") depth--;
    if (token === "[" && tokens[i - 1] === "\\sqrt") { root = depth; return; }
    if (token === "]" && root === depth) { root = -1; return; }
    if (!without.has(token)) inked.push(i);
  });
  return inked;
}
