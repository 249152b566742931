// One chart: drawn by Bokeh while it is on screen, with a cursor that all charts share and a range to drag.

import { download, h } from "./dom.js";
import { url } from "./feed.js";
import { short, ticks } from "./format.js";
import { color, dash, theme } from "./palette.js";
import { watch } from "./series.js";
import { range, setState, state, toggle } from "./state.js";

const MAX_TIP = 12; // lines
const FAINT = { light: 0.28, dark: 0.34 };
const visible = new Set(); // charts on screen
const observer = new IntersectionObserver(
  (entries) => entries.forEach(({ target, isIntersecting }) => target.chart.show(isIntersecting)),
  { rootMargin: "150px" },
);

// Lines are {run, metric, label, isEval}; title is what stands above, and metric what is pinned, logged and saved.
export class Chart {
  constructor({ title, metric, lines, dots = false, tall = false, band = null }) {
    Object.assign(this, { title, metric, lines, dots, band });
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
    this.document?.clear();
    this.document = this.plot = this.view = null;
    delete this.element.dataset.drawn;
    this.canvas.replaceChildren();
  }

  remove() {
    this.show(false);
    observer.unobserve(this.element);
  }

  // Draws at most once a frame, however many series have changed.
  draw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      if (visible.has(this)) this.paint();
    });
  }

  paint() {
    const data = this.watched.map(([series]) => series);
    if (!this.plot) this.create();
    data.forEach((series, i) => {
      const { raw, smooth } = this.sources[i];
      raw.data = { x: series.x, y: this.admit(series.y) };
      smooth.data = { x: series.sx, y: this.admit(series.sy) };
    });
    if (this.bandSource && this.band) this.bandSource.data = this.band;
    this.fit(data);
    this.readValues(this.at ?? null); // a cursor stays while new points come
    this.element.classList.toggle("empty", data.every((series) => !series.x.length));
    this.element.dataset.points = data.reduce((sum, series) => sum + (series.total ?? 0), 0);
  }

  admit(values) {
    return this.isLog ? values.map((value) => (value > 0 ? value : NaN)) : values;
  }

  create() {
    const { Plotting, Range1d, ColumnDataSource } = Bokeh;
    const ink = getComputedStyle(document.documentElement);
    const [text, grid] = [ink.getPropertyValue("--muted"), ink.getPropertyValue("--grid")];
    this.isLog = state.log.includes(this.metric);
    const plot = Plotting.figure({
      sizing_mode: "stretch_both", tools: "", toolbar_location: null, output_backend: "canvas",
      x_range: new Range1d({ start: 0, end: 1 }), y_range: new Range1d({ start: 0, end: 1 }),
      y_axis_type: this.isLog ? "log" : "linear",
      background_fill_color: null, border_fill_color: null, outline_line_color: null,
      min_border_left: 46, min_border_right: 12, min_border_top: 6, min_border_bottom: 20,
    });
    for (const axis of [...plot.xaxes, ...plot.yaxes]) {
      Object.assign(axis, {
        axis_line_color: null, major_tick_line_color: null, minor_tick_line_color: null,
        major_label_text_color: text, major_label_text_font_size: "11px", major_label_standoff: 4,
      });
      axis.ticker.desired_num_ticks = axis === plot.xaxes[0] ? 5 : 4;
      if (!(this.isLog && axis === plot.yaxes[0])) {
        axis.formatter = new Bokeh.BasicTickFormatter({ use_scientific: false });
        axis.formatter.doFormat = ticks; // 20k rather than 20000
      }
    }
    for (const line of [...plot.xgrids, ...plot.ygrids]) Object.assign(line, { grid_line_color: grid });
    this.sources = this.lines.map((line) => this.addLine(plot, line));
    this.plot = plot;
    this.document = new Bokeh.Document();
    this.document.add_root(plot);
    const documentNow = this.document;
    Bokeh.embed.add_document_standalone(documentNow, this.canvas).then((views) => {
      if (this.document !== documentNow) return;
      this.view = [...views][0];
      this.element.dataset.drawn = "true";
    });
  }

  addLine(plot, { run, isEval }) {
    const [line_color, own] = [color(run, isEval), dash(run)];
    const line_dash = isEval && !own.length ? [5, 3] : own;
    const raw = new Bokeh.ColumnDataSource({ data: { x: [], y: [] } });
    const smooth = new Bokeh.ColumnDataSource({ data: { x: [], y: [] } });
    const isSmoothed = Number(state.smooth) > 1;
    const line_alpha = isSmoothed ? FAINT[theme()] : 1;
    const common = { x: { field: "x" }, y: { field: "y" } };
    if (this.dots && isSmoothed) {
      const look = isEval ? { size: 7, marker: "diamond", fill_color: null, line_color, line_alpha: 2 * line_alpha }
        : { size: 4, marker: "circle", fill_color: line_color, fill_alpha: line_alpha, line_color: null };
      plot.scatter({ ...common, source: raw, ...look });
    } else plot.line({ ...common, source: raw, line_color, line_alpha, line_dash, line_width: isSmoothed ? 1 : 1.5 });
    if (isSmoothed) plot.line({ ...common, source: smooth, line_color, line_dash, line_width: 2, line_join: "round" });
    return { raw, smooth };
  }

  // The range of x is that of the page, or of all points; that of y is of what can be seen in it.
  fit(data) {
    const zoom = range();
    const spans = data.filter((series) => series.x.length).map(({ x }) => [x[0], x[x.length - 1]]);
    if (!spans.length) return;
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
    this.plot.x_range.setv({ start: low, end: high });
    this.plot.y_range.setv({ start: bottom, end: top });
  }

  // The cursor and the range

  frameBox() {
    const box = this.view?.frame?.bbox;
    return box ? { left: box.left, width: box.width } : null;
  }

  toX(clientX) {
    const box = this.frameBox();
    if (!box) return null;
    const share = (clientX - this.plotArea.getBoundingClientRect().left - box.left) / box.width;
    const { start, end } = this.plot.x_range;
    return start + Math.min(1, Math.max(0, share)) * (end - start);
  }

  toPixel(x) {
    const box = this.frameBox();
    const { start, end } = this.plot.x_range;
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
      if (from === null || !this.view) return;
      const left = area.getBoundingClientRect().left;
      this.brush.hidden = Math.abs(event.clientX - from) < 4;
      this.brush.style.left = `${Math.min(from, event.clientX) - left}px`;
      this.brush.style.width = `${Math.abs(event.clientX - from)}px`;
    });
    area.addEventListener("pointerup", (event) => {
      const [a, b] = [this.toX(from ?? 0), this.toX(event.clientX)].sort((x, y) => x - y);
      if (from !== null && Math.abs(event.clientX - from) >= 4 && this.view) zoomTo(a, b);
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
    if (!this.view) return;
    const { start, end } = this.plot.x_range;
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
    const left = x === null || !this.view ? null : this.toPixel(x);
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
      h("div", {}, h("i", { style: `background:${color(run, isEval)}` }), h("span", {}, `${run}${isEval ? " (eval)" : ""}`), h("b", {}, short(value, 4)))),
      left > 0 ? h("div", {}, `and ${left} more`) : "");
  }

  // Files

  saveCsv() {
    const metrics = [...new Set(this.lines.map((line) => line.metric))];
    const run = [...new Set(this.lines.map((line) => line.run))];
    metrics.forEach((metric) => download(`${metric.replaceAll("/", "_")}.csv`, url("csv", { run, metric })));
  }

  savePng() {
    if (!this.view) return;
    const image = this.view.export("png", true).canvas;
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

// What a line shows nearest to x.
function valueAt(series, x) {
  const [xs, ys] = Number(state.smooth) > 1 && series.sx.length ? [series.sx, series.sy] : [series.x, series.y];
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

// The newest x of the charts on screen, which a followed range ends at.
export function latestX() {
  const ends = [...visible].flatMap((chart) => (chart.watched ?? []).map(([{ x }]) => x[x.length - 1] ?? -Infinity));
  return Math.max(-Infinity, ...ends);
}
