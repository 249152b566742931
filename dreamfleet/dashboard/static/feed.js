// The connection to the server: questions, and the stream of what is new.

import { state, range } from "./state.js";

export const runs = new Map(); // name -> summary
export const fleets = new Map(); // name -> fleet, of the run in focus
const listeners = new Map(); // event -> functions
export const page = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16)).join(""); // its name for the server
export const isOver = (run) => run?.state === "ended" || run?.state === "failed";
let source = null;
let address = "";

export function on(event, listener) {
  if (!listeners.has(event)) listeners.set(event, new Set());
  listeners.get(event).add(listener);
  return () => listeners.get(event).delete(listener);
}

function tell(event, data) {
  listeners.get(event)?.forEach((listener) => listener(data));
}

export async function ask(path, params = {}) {
  const response = await fetch(url(path, params));
  if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
  return response.json();
}

export function url(path, params) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (Array.isArray(value)) value.forEach((item) => query.append(key, item));
    else if (value !== undefined && value !== "") query.set(key, value);
  }
  return `/api/${path}?${query}`;
}

// Numbers as the server encodes them.
export function decode(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return Array.from(new Float64Array(bytes.buffer));
}

// How series are looked at: the same for history and for what is new.
export function view() {
  return { axis: state.axis, window: state.smooth };
}

// Opens the stream for the chosen runs, or opens it again if they or the view have changed.
export function connect() {
  if (document.hidden) return; // it does when it is seen
  const next = url("events", { run: state.run, page, ...view() });
  if (source && next === address && source.readyState !== EventSource.CLOSED) return;
  source?.close();
  address = next;
  source = new EventSource(next);
  source.addEventListener("open", () => tell("connection", "open"));
  source.addEventListener("error", () => tell("connection", "lost"));
  source.addEventListener("bye", () => tell("connection", "bye"));
  source.addEventListener("runs", (event) => {
    const { changed, gone } = JSON.parse(event.data);
    changed.forEach((run) => runs.set(run.name, run));
    gone.forEach((name) => runs.delete(name));
    tell("runs", { changed, gone });
  });
  source.addEventListener("fleet", (event) => {
    const fleet = JSON.parse(event.data);
    fleets.set(fleet.run, fleet);
    tell("fleet", fleet);
  });
  source.addEventListener("names", (event) => tell("names", JSON.parse(event.data)));
  source.addEventListener("rows", (event) => tell("rows", JSON.parse(event.data)));
  source.addEventListener("reload", (event) => tell("reload", JSON.parse(event.data)));
}

// A page that nobody sees needs nothing, and a browser has only six connections for all of its tabs on one server.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return connect();
  source?.close();
  source = null;
  tell("connection", "hidden");
});

export { range };
