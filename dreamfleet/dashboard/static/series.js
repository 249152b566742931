// The series that charts show: history once, then what the stream brings. Charts of one frame share one request.

import { ask, decode, on, page, range, view } from "./feed.js";

const MAX_SERIES = 500; // in one question
const POINTS = 800; // of a line, before it is reduced again
const METRICS = "metrics.jsonl";
const ALL = [Infinity, 0]; // more than any history goes up to
const RELOAD_MS = 1500; // between two requests for the same series
const cache = new Map(); // key -> Series
const metricNames = new Map(); // run -> Set of metrics
const waiting = new Map(); // series to be asked for in the next frame
let timer = 0;

// Names may hold any character.
const keyOf = (run, metric) => JSON.stringify([run, metric]);

class Series {
  constructor(run, metric) {
    Object.assign(this, { run, metric, x: [], y: [], sx: [], sy: [], newest: -Infinity, file: fileOf(metric), cursor: null });
    this.listeners = new Set();
    this.loadedAt = 0;
    this.loads = 0; // how often the history has come
    this.isStale = true;
    this.told = null; // where the stream has got to since the history was last asked for: generation and lines
  }

  take(data) {
    this.x = decode(data.x);
    this.y = decode(data.y);
    this.sx = data.sx ? decode(data.sx) : [];
    this.sy = data.sy ? decode(data.sy) : [];
    this.cursor = data.cursor;
    this.total = data.total;
    this.before = this.newest = data.newest ?? -Infinity;
    this.isStale = data.partial || isBefore(data.cursor, this.told);
    this.loads++;
    this.loadedAt = performance.now();
    this.tell();
    if (this.isStale) requestSoon(this);
  }

  // Adds new points; asks for the reduced history again when there are too many of them.
  append(generation, rows, [row, x, y, smooth]) {
    this.told = [generation, rows];
    // Of the whole line, wherever the range ends, and also while the history is under way: a range may follow it.
    this.before = this.newest;
    this.newest = Math.max(this.newest, x.at(-1) ?? -Infinity);
    if (!this.cursor || this.isStale) return;
    if (generation !== this.cursor[0] || this.x.length > 3 * POINTS) {
      this.isStale = true;
      if (this.listeners.size) request(this);
      return;
    }
    if (x.some((each, i) => each < (x[i - 1] ?? this.before))) {
      this.isStale = true; // a run that was resumed repeats some steps: the server puts them in order
      requestSoon(this);
      return;
    }
    const { end } = range();
    for (let i = 0; i < row.length; i++) {
      if (row[i] < this.cursor[1] || x[i] > end) continue;
      this.x.push(x[i]);
      this.y.push(y[i]);
      this.total++;
      if (smooth) {
        this.sx.push(x[i]);
        this.sy.push(smooth[i]);
      }
    }
    this.cursor = [generation, Math.max(rows, this.cursor[1])];
    this.tell();
  }

  tell() {
    this.listeners.forEach((listener) => listener());
  }
}

function isBefore(cursor, told) {
  return told !== null && (cursor[0] < told[0] || (cursor[0] === told[0] && cursor[1] < told[1]));
}

function fileOf(metric) {
  const kind = /^(eval_)?episode\/(score|length)$/.exec(metric);
  return kind ? `${kind[1] ?? ""}scores.jsonl` : METRICS;
}

// The series of a metric; the listener hears of every change until the returned function is called.
export function watch(run, metric, listener) {
  const key = keyOf(run, metric);
  if (!cache.has(key)) cache.set(key, new Series(run, metric));
  const series = cache.get(key);
  series.listeners.add(listener);
  if (series.isStale) request(series);
  return [series, () => unwatch(series, listener)];
}

function unwatch(series, listener) {
  series.listeners.delete(listener);
  if (!series.listeners.size) series.isStale = true; // the stream does not bring it any more
}

// Tells the server which metrics are on screen: the stream brings no others.
let told = "";
let telling = Promise.resolve();
function tellWatched() {
  const watched = [...cache.values()].filter((series) => series.listeners.size);
  const metric = [...new Set(watched.map((series) => series.metric))].sort();
  if (JSON.stringify(metric) !== told) {
    told = JSON.stringify(metric);
    telling = telling.then(() => ask("watch", { page, metric })).catch(() => (told = ""));
  }
}

function request(series) {
  waiting.set(keyOf(series.run, series.metric), series);
  timer ||= setTimeout(flush, 0);
}

// Asks again, but not more often than the server and the eye can bear.
function requestSoon(series) {
  const wait = RELOAD_MS - (performance.now() - series.loadedAt);
  series.timer ||= setTimeout(() => {
    series.timer = 0;
    if (series.isStale && series.listeners.size) request(series);
  }, Math.max(0, wait));
}

async function flush() {
  const batch = [...waiting.values()];
  waiting.clear();
  timer = 0;
  for (const series of batch) series.told = null; // the server has read it, and the answer will have it
  tellWatched();
  const byMetrics = new Map(); // runs that are asked for the same metrics share a request
  for (const run of new Set(batch.map((series) => series.run))) {
    const metrics = batch.filter((series) => series.run === run).map((series) => series.metric);
    for (let i = 0; i < metrics.length; i += 24) {
      const key = JSON.stringify(metrics.slice(i, i + 24));
      byMetrics.set(key, [...(byMetrics.get(key) ?? []), run]);
    }
  }
  const questions = [...byMetrics].flatMap(([key, names]) => {
    const [metrics, parts] = [JSON.parse(key), []];
    const size = Math.floor(MAX_SERIES / metrics.length);
    for (let i = 0; i < names.length; i += size) parts.push(load(names.slice(i, i + size), metrics));
    return parts;
  });
  await Promise.all(questions);
}

async function load(names, metrics) {
  const { start, end } = range();
  const bounds = { ...(start > -Infinity && { start }), ...(end < Infinity && { end }) };
  const asked = JSON.stringify([view(), bounds]);
  try {
    const answer = await ask("series", { page, run: names, metric: metrics, points: POINTS, ...view(), ...bounds });
    const { start: s, end: e } = range();
    const now = { ...(s > -Infinity && { start: s }), ...(e < Infinity && { end: e }) };
    if (asked !== JSON.stringify([view(), now])) return; // meanwhile the page looks at something else
    for (const [run, all] of Object.entries(answer)) {
      for (const [metric, data] of Object.entries(all)) cache.get(keyOf(run, metric))?.take(data);
    }
  } catch (error) {
    console.warn(String(error)); // the stream tells when the server or the run is back
  }
}

// After a change of axis, smoothing or range: what is on screen is asked for again, the rest when it is needed.
export function reloadAll() {
  for (const [key, series] of cache) {
    if (!series.listeners.size) cache.delete(key);
    else {
      series.isStale = true;
      request(series);
    }
  }
}

export async function loadNames(names) {
  const missing = names.filter((name) => !metricNames.has(name));
  if (missing.length) {
    const answer = await ask("metrics", { run: missing });
    for (const [run, metrics] of Object.entries(answer)) metricNames.set(run, new Set(metrics));
  }
  return names;
}

export function namesOf(runs) {
  return [...new Set(runs.flatMap((run) => [...(metricNames.get(run) ?? [])]))];
}

const nameListeners = new Set();
export const onNames = (listener) => nameListeners.add(listener);

on("names", ({ run, metrics }) => {
  const before = metricNames.get(run)?.size ?? 0;
  metricNames.set(run, new Set(metrics));
  if (metrics.length !== before) nameListeners.forEach((listener) => listener());
});

on("rows", ({ run, file, generation, rows, values }) => {
  for (const [metric, points] of Object.entries(values)) {
    const series = cache.get(keyOf(run, metric));
    if (series?.file === file) series.append(generation, rows, points);
  }
  // Episodes are placed among the updates that are known: more of those may move the last ones.
  if (view().axis === "update" && file === METRICS) reload((series) => series.run === run && series.file !== file);
});

function reload(isMeant) {
  for (const series of [...cache.values()].filter(isMeant)) {
    series.isStale = true;
    series.told = ALL; // a history that is under way may be older
    requestSoon(series);
  }
}

on("reload", ({ run }) => reload((series) => series.run === run));

// A server that was started anew knows nothing of this page, and what came meanwhile is missing.
let wasLost = false;
on("connection", (news) => {
  if (news === "open" && wasLost) {
    told = "";
    reload(() => true);
  }
  wasLost = news !== "open";
});
