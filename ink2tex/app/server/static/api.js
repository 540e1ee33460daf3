// Calls of the server. Whatever goes wrong becomes an Error whose message is a sentence.

let token = sessionStorage.getItem("ink2tex-token") ?? "";

export function setToken(value) {
  token = value;
  sessionStorage.setItem("ink2tex-token", value);
}

export class Problem extends Error {
  constructor(message, code, retry = 0) {
    super(message);
    this.code = code;
    this.retry = retry;
  }
}

export const readStrokes = (strokes, signal) => post("recognize", JSON.stringify({ strokes }), "application/json", signal);
export const readPicture = (blob, signal) => post("recognize", blob, blob.type, signal);
export const toMathml = async (latex, signal) =>
  (await post("mathml", JSON.stringify({ latex }), "application/json", signal)).mathml;

async function post(call, body, type, signal) {
  const headers = { "Content-Type": type };
  if (token) headers.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(`/v1/${call}`, { method: "POST", headers, body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server cannot be reached; see whether it still runs.", "offline");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer) return answer;
  const retry = Number(response.headers.get("Retry-After")) || 0;
  throw new Problem(answer?.detail ?? "The server gave no answer that can be read; try again.", answer?.code ?? "", retry);
}
