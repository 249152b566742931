// One chart: a figure while it is on screen, with a cursor that all charts share and a range to drag.

import { download, h } from "./dom.js";
import { url } from "./feed.js";
import { Figure } from "./figure.js";
import { short } from "./format.js";
import { isLibraryThere, loadLibrary } from "./library.js";
import { color } from "./palette.js";
import { watch } from "./series.js";
import { sketch } from "./sketch.js";
import { range, setState, state, toggle } from "./state.js";

const MAX_TIP = 12; // lines
const REST_MS = 5000; // at most, until what is new in a chart is drawn, however little it is
const visible = new Set(); // charts on screen
const changed = new Set(); // of those, what is to be drawn
const FRAME_MS = 12; // of making charts at a time: the first are seen before the last are made
const GATHER_MS = 40;
const observer = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => target.chart.show(isIntersecting)));

// Lines are {run, metric, label, isEval}; title is what stands above, and metric what is pinned, logged and saved.
export class Chart {
  constructor({ title, metric, lines, dots = false, tall = false }) {
    Object.assign(this, { title, metric, lines, dots });
    this.isLog = state.log.includes(metric);
    this.readout = h("span", { class: "readout" });
    this.canvas = h("div", { class: "canvas" });
    this.cursor = h("div", { class: "cursor", hidden: true });
    this.brush = h("div", { class: "brush", hidden: true });
    this.tip = h("div", { class: "tip", hidden: true });
    this.plotArea = h(
      "div",
      { class: "plot", tabindex: "0", role: "img", "aria-label": `chart of ${title}`, onkeydown: (e) => this.onKey(e) },
      this.canvas,
      this.cursor,
      this.brush,
      this.tip,
    );
    this.element = h(
      "figure",
      { class: `chart${tall ? " tall" : ""}`, "data-metric": metric },
      h("figcaption", {}, h("span", { class: "title", title: metric }, title), this.readout, this.buttons()),
      this.plotArea,
    );
    this.element.chart = this;
    this.listenToPointer();
    observer.observe(this.element);
  }

  buttons() {
    const button = (label, text, action, pressed) =>
      h("button", { class: "mini", title: label, "aria-label": `${label}: ${this.title}`, onclick: action,
        "aria-pressed": pressed === undefined ? null : String(pressed) }, text);
    return h(
      "span",
      { class: "buttons" },
      button("pin to the top", state.pin.includes(this.metric) ? "★" : "☆", () => toggle("pin", this.metric), state.pin.includes(this.metric)),
      button("logarithmic axis", "log", () => toggle("log", this.metric), state.log.includes(this.metric)),
      button("download as CSV", "csv", () => this.saveCsv()),
      button("download as PNG", "png", () => this.savePng()),
    );
  }

  show(isVisible) {
    if (isVisible === visible.has(this)) return;
    if (isVisible) {
      visible.add(this);
      this.watched = this.lines.map(({ run, metric }) => watch(run, metric, () => this.draw()));
      this.draw();
    } else {
      visible.delete(this);
      this.watched?.forEach(([, stop]) => stop());
      this.clear();
    }
  }

  // Frees what is drawn; the chart may be shown again.
  clear() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.figure?.clear();
    this.figure = this.drawn = null;
    delete this.element.dataset.drawn;
    this.canvas.replaceChildren();
  }

  remove() {
    this.show(false);
    observer.unobserve(this.element);
  }

  // Draws at most once a frame, however many series have changed.
  draw() {
    changed.add(this);
    drawSoon();
  }

  paint() {
    const data = this.watched.map(([series]) => series);
    if (!this.figure && data.every((series) => !series.cursor)) return; // nothing has come yet
    if (isLibraryThere()) this.plotIfMoved(data);
    else {
      const lines = data.map((series, i) => ({ points: shownLine(series), color: color(this.lines[i].run, this.lines[i].isEval) }));
      this.canvas.replaceChildren(sketch(lines, this.findRange(data), this.isLog));
      loadLibrary().then(() => this.draw(), () => {}); // without it, the next change tries again
    }
    this.readValues(this.at ?? null); // a cursor stays while new points come
    this.element.classList.toggle("empty", data.every((series) => !series.x.length));
    this.element.dataset.points = data.reduce((sum, series) => sum + (series.total ?? 0), 0);
  }

  // Drawing is most of what a page costs: it waits until what is new makes a pixel.
  plotIfMoved(data) {
    const bounds = this.findRange(data);
    const isSame = this.drawn && data.every((series, i) => series.loads === this.drawn.loads[i] && series.total === this.drawn.totals[i]);
    if (isSame) return;
    if (this.drawn && !this.hasMoved(data, bounds)) {
      this.timer ||= setTimeout(() => { this.timer = 0; this.draw(); }, REST_MS);
      return;
    }
    this.figure ??= new Figure(this.canvas, this, () => (this.element.dataset.drawn = "true"));
    this.figure.set(data, bounds);
    this.drawn = { ...bounds, at: performance.now(), loads: data.map((series) => series.loads),
      ends: data.map((series) => series.newest), totals: data.map((series) => series.total) };
  }

  hasMoved(data, bounds) {
    const { drawn } = this;
    const box = this.figure?.box;
    const isNew = data.some((series, i) => series.loads !== drawn.loads[i]);
    if (!box || !bounds || drawn.low === undefined || isNew) return true;
    if (performance.now() - drawn.at >= REST_MS) return true;
    const scale = this.isLog ? Math.log : (y) => y;
    const [perX, perY] = [box.width / (drawn.high - drawn.low), box.height / (scale(drawn.top) - scale(drawn.bottom))];
    const shifts = [
      ...data.map((series, i) => (series.newest === drawn.ends[i] ? 0 : perX * (series.newest - drawn.ends[i]))),
      ...["low", "high"].map((key) => perX * (bounds[key] - drawn[key])),
      ...["bottom", "top"].map((key) => perY * (scale(bounds[key]) - scale(drawn[key]))),
    ];
    return shifts.some((pixels) => !(Math.abs(pixels) < 1));
  }

  // The range of x is that of the page, or of all points; that of y is of what can be seen in it.
  findRange(data) {
    const zoom = range();
    const spans = data.filter((series) => series.x.length).map(({ x }) => [x[0], x[x.length - 1]]);
    if (!spans.length) return null;
    let [low, high] = [Math.min(...spans.map(([a]) => a)), Math.max(...spans.map(([, b]) => b))];
    if (zoom.start > -Infinity) low = zoom.start;
    if (zoom.end < Infinity) high = zoom.end;
    if (high <= low) [low, high] = [low - 0.5, high + 0.5];
    let [bottom, top] = [Infinity, -Infinity];
    for (const { x, y } of data) {
      for (let i = 0; i < x.length; i++) {
        const value = y[i];
        if (x[i] < low || x[i] > high || !(this.isLog ? value > 0 : value === value)) continue;
        if (value < bottom) bottom = value;
        if (value > top) top = value;
      }
    }
    if (bottom > top) [bottom, top] = this.isLog ? [0.1, 1] : [0, 1];
    if (this.isLog) [bottom, top] = [bottom / 1.15, top * 1.15];
    else {
      const pad = (top - bottom) * 0.06 || Math.abs(top) * 0.05 || 0.5;
      [bottom, top] = [bottom - pad, top + pad];
    }
    return { low, high, bottom, top };
  }

  // The cursor and the range

  toX(clientX) {
    const box = this.figure?.box;
    if (!box) return null;
    const share = (clientX - this.plotArea.getBoundingClientRect().left - box.left) / box.width;
    const { start, end } = this.figure.range;
    return start + Math.min(1, Math.max(0, share)) * (end - start);
  }

  toPixel(x) {
    const box = this.figure.box;
    const { start, end } = this.figure.range;
    return box && x >= start && x <= end ? box.left + (box.width * (x - start)) / (end - start) : null;
  }

  listenToPointer() {
    let from = null;
    const area = this.plotArea;
    area.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button) return;
      from = event.clientX;
      area.setPointerCapture(event.pointerId);
    });
    area.addEventListener("pointermove", (event) => {
      moveCursor(this.toX(event.clientX));
      this.showTip(event);
      if (from === null || !this.figure?.box) return;
      const left = area.getBoundingClientRect().left;
      this.brush.hidden = Math.abs(event.clientX - from) < 4;
      this.brush.style.left = `${Math.min(from, event.clientX) - left}px`;
      this.brush.style.width = `${Math.abs(event.clientX - from)}px`;
    });
    area.addEventListener("pointerup", (event) => {
      const [a, b] = [this.toX(from ?? 0), this.toX(event.clientX)].sort((x, y) => x - y);
      if (from !== null && Math.abs(event.clientX - from) >= 4 && this.figure?.box) zoomTo(a, b);
      from = null;
      this.brush.hidden = true;
    });
    area.addEventListener("pointerleave", () => {
      moveCursor(null);
      this.tip.hidden = true;
    });
    area.addEventListener("dblclick", () => setState({ start: "", end: "" }));
  }

  onKey(event) {
    if (!this.figure?.box) return;
    const { start, end } = this.figure.range;
    const width = end - start;
    const at = this.at ?? end;
    const keys = {
      ArrowLeft: () => moveCursor(Math.max(start, at - width / 50)),
      ArrowRight: () => moveCursor(Math.min(end, at + width / 50)),
      "+": () => zoomTo(at - width / 4, at + width / 4),
      "-": () => zoomTo(start - width / 2, end + width / 2),
      Escape: () => setState({ start: "", end: "" }),
    };
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  }

  // Shows the cursor at x, and the values there; the latest ones without a cursor.
  point(x) {
    this.at = x;
    const left = x === null || !this.figure?.box ? null : this.toPixel(x);
    this.cursor.hidden = left === null;
    if (left !== null) this.cursor.style.transform = `translateX(${left}px)`;
    this.readValues(x);
  }

  readValues(x) {
    const cells = this.watched.slice(0, 4).map(([series], i) => {
      const value = valueAt(series, x ?? Infinity);
      const { run, isEval } = this.lines[i];
      return value === null ? null : h("b", { style: `color:${color(run, isEval)}` }, `${isEval ? "eval " : ""}${short(value, 4)}`);
    });
    const place = x === null ? null : h("i", {}, `${short(x, 5)}`);
    this.readout.replaceChildren(...[place, ...cells].filter(Boolean));
  }

  // Which run has which value at the pointer, the greatest first; with one line the caption says it all.
  showTip(event) {
    const at = this.toX(event.clientX);
    const rows = at === null ? [] : this.watched.map(([series], i) => ({ ...this.lines[i], value: valueAt(series, at) }))
      .filter(({ value }) => value !== null).sort((a, b) => b.value - a.value);
    this.tip.hidden = rows.length < 2;
    if (this.tip.hidden) return;
    const box = this.plotArea.getBoundingClientRect();
    const [x, isRight] = [event.clientX - box.left, event.clientX - box.left > box.width / 2];
    this.tip.style.cssText = isRight ? `right:${box.width - x + 12}px` : `left:${x + 12}px`;
    const left = rows.length - MAX_TIP;
    this.tip.replaceChildren(...rows.slice(0, MAX_TIP).map(({ run, isEval, value }) =>
      h("div", {}, h("i", { style: `background:${color(run, isEval)}` }), h("span", {}, h("bdi", {}, `${run}${isEval ? " (eval)" : ""}`)), h("b", {}, short(value, 4)))),
      left > 0 ? h("div", {}, `and ${left} more`) : "");
  }

  // Files

  saveCsv() {
    const metrics = [...new Set(this.lines.map((line) => line.metric))];
    const run = [...new Set(this.lines.map((line) => line.run))];
    metrics.forEach((metric) => download(`${metric.replaceAll("/", "_")}.csv`, url("csv", { run, metric })));
  }

  savePng() {
    if (!this.figure?.box) return;
    const image = this.figure.takeImage();
    const scale = devicePixelRatio;
    const canvas = h("canvas", {});
    [canvas.width, canvas.height] = [image.width, image.height + 28 * scale];
    const pen = canvas.getContext("2d");
    const ink = getComputedStyle(document.documentElement);
    pen.fillStyle = ink.getPropertyValue("--panel");
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.fillStyle = ink.getPropertyValue("--ink");
    pen.font = `600 ${13 * scale}px system-ui, sans-serif`;
    pen.fillText(this.title, 10 * scale, 19 * scale);
    pen.drawImage(image, 0, 28 * scale);
    download(`${this.metric.replaceAll("/", "_")}.png`, canvas.toDataURL("image/png"));
  }
}

// What one second brings comes in several events: the charts that are there already change in one frame, as each frame
// costs the browser all of its canvases.
let [frame, pause] = [0, 0];
function drawSoon() {
  if (frame || !changed.size) return;
  if ([...changed].some((chart) => !chart.figure)) frame = requestAnimationFrame(drawChanged);
  else pause ||= setTimeout(() => { pause = 0; frame ||= requestAnimationFrame(drawChanged); }, GATHER_MS);
}

function drawChanged(begun) {
  frame = 0;
  for (const chart of changed) {
    const isThere = Boolean(chart.figure);
    changed.delete(chart);
    if (visible.has(chart)) chart.paint();
    if (!isThere && performance.now() - begun > FRAME_MS) break;
  }
  drawSoon();
}

// The smoothed line, or the points themselves.
function shownLine(series) {
  return Number(state.smooth) > 1 && series.sx.length ? [series.sx, series.sy] : [series.x, series.y];
}

// What a line shows nearest to x.
function valueAt(series, x) {
  const [xs, ys] = shownLine(series);
  return xs.length ? ys[x === Infinity ? xs.length - 1 : nearest(xs, x)] : null;
}

function nearest(xs, x) {
  let [low, high] = [0, xs.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}

let cursorFrame = 0;
function moveCursor(x) {
  cancelAnimationFrame(cursorFrame);
  cursorFrame = requestAnimationFrame(() => visible.forEach((chart) => chart.watched && chart.point(x)));
}

function zoomTo(start, end) {
  const digits = (value) => String(Number(value.toPrecision(7)));
  setState({ start: digits(start), end: digits(end) });
}

// The newest x of the charts on screen, which a followed range ends at, and that before the latest points came.
export function latestX() {
  const all = [...visible].flatMap((chart) => (chart.watched ?? []).map(([series]) => series)).filter((series) => series.cursor);
  const most = (key) => all.reduce((most, series) => Math.max(most, series[key]), -Infinity);
  return { latest: most("newest"), before: most("before") };
}
