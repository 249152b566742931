// What is shown, kept in the address: a link to the page shows the same to somebody else.

const DEFAULTS = {
  tab: "overview", // overview, metrics, runs, fleet, dreams
  run: [], // the first is the one in focus, all of them are in the charts
  axis: "step", // step, update, hours
  smooth: "20", // points in the running mean
  start: "", // range of x that is zoomed into
  end: "",
  follow: "1",
  pin: [],
  log: [], // metrics with a logarithmic axis
  q: "", // search in the metrics
  group: "", // runs of one experiment as mean and band
  metric: "", // of the comparison
  sort: "name",
  theme: "",
};

// What of an address is taken over: the server refuses anything else, and links are written by hand too.
const isNumber = (text) => text.trim() !== "" && Number.isFinite(Number(text));
const VALID = {
  tab: (text) => ["overview", "metrics", "runs", "fleet", "dreams"].includes(text),
  axis: (text) => ["step", "update", "hours"].includes(text),
  smooth: (text) => /^[1-9]\d{0,3}$/.test(text),
  start: isNumber,
  end: isNumber,
  follow: (text) => /^[01]$/.test(text),
  theme: (text) => ["dark", "light"].includes(text),
};

const listeners = new Set();
export const state = read();

function read() {
  const query = new URLSearchParams(location.search);
  const values = {};
  for (const [key, value] of Object.entries(DEFAULTS)) {
    const given = query.get(key);
    if (Array.isArray(value)) values[key] = [...new Set(query.getAll(key))];
    else values[key] = given !== null && (VALID[key]?.(given) ?? true) ? given : value;
  }
  return values;
}

export function setState(changes, { push = false } = {}) {
  const before = { ...state };
  Object.assign(state, changes);
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(DEFAULTS)) {
    if (Array.isArray(value)) state[key].forEach((item) => query.append(key, item));
    else if (state[key] !== value) query.set(key, state[key]);
  }
  const text = query.toString().replaceAll("%2F", "/");
  history[push ? "pushState" : "replaceState"](null, "", text ? `?${text}` : location.pathname);
  tell(before);
}

export function onState(listener) {
  listeners.add(listener);
}

function tell(before) {
  const changed = new Set(Object.keys(DEFAULTS).filter((key) => JSON.stringify(before[key]) !== JSON.stringify(state[key])));
  if (changed.size) listeners.forEach((listener) => listener(changed));
}

addEventListener("popstate", () => {
  const before = { ...state };
  Object.assign(state, read());
  tell(before);
});

export const range = () => ({
  start: state.start === "" ? -Infinity : Number(state.start),
  end: state.end === "" ? Infinity : Number(state.end),
});

export function toggle(key, item) {
  const items = state[key];
  setState({ [key]: items.includes(item) ? items.filter((other) => other !== item) : [...items, item] });
}
