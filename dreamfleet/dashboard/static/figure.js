// What Bokeh draws of one chart: axes, lines and dots, in a canvas that it fills.

import { ticks } from "./format.js";
import { color, dash, theme } from "./palette.js";
import { state } from "./state.js";

const FAINT = { light: 0.28, dark: 0.34 };
const FIELDS = { x: { field: "x" }, y: { field: "y" } };

export class Figure {
  // Lines are as in a chart; `onDrawn` is called once, when there is something to see.
  constructor(canvas, { lines, dots, isLog }, onDrawn) {
    Object.assign(this, { lines, dots, isLog });
    this.sources = []; // by line
    const { Range1d } = Bokeh;
    this.plot = makePlot({ x_range: new Range1d({ start: 0, end: 1 }), y_range: new Range1d({ start: 0, end: 1 }) }, isLog);
    this.document = new Bokeh.Document();
    this.document.add_root(this.plot);
    canvas.replaceChildren();
    Bokeh.embed.add_document_standalone(this.document, canvas).then((views) => {
      if (!this.document) return; // cleared meanwhile
      this.view = [...views][0];
      onDrawn();
    });
  }

  clear() {
    this.document.clear();
    this.document = this.view = null;
  }

  // Where the lines are, in pixels of the canvas; null until it is drawn.
  get box() {
    return this.view?.frame?.bbox ?? null;
  }

  get range() {
    return this.plot.x_range;
  }

  set(data, bounds) {
    holdStill(this.view);
    data.forEach((series, i) => {
      if (!series.x.length && !this.sources[i]) return; // as evaluation often
      const sources = (this.sources[i] ??= this.addLine(this.lines[i]));
      sources.raw.data = { x: series.x, y: this.admit(series.y) };
      sources.smooth.data = { x: series.sx, y: this.admit(series.sy) };
      const isAlone = series.x.length === 1;
      if (isAlone) sources.alone ??= this.addDot(this.lines[i]);
      if (sources.alone) sources.alone.data = isAlone ? sources.raw.data : { x: [], y: [] };
    });
    if (!bounds) return;
    this.plot.x_range.setv({ start: bounds.low, end: bounds.high });
    this.plot.y_range.setv({ start: bounds.bottom, end: bounds.top });
  }

  admit(values) {
    return this.isLog ? values.map((value) => (value > 0 ? value : NaN)) : values;
  }

  addLine({ run, isEval }) {
    const [line_color, own] = [color(run, isEval), dash(run, state.run)];
    const line_dash = isEval && !own.length ? [5, 3] : own;
    const [raw, smooth] = [makeSource(), makeSource()];
    const isSmoothed = Number(state.smooth) > 1;
    const line_alpha = isSmoothed ? FAINT[theme()] : 1;
    if (this.dots && isSmoothed) {
      const look = isEval ? { size: 7, marker: "diamond", fill_color: null, line_color, line_alpha: 2 * line_alpha }
        : { size: 4, marker: "circle", fill_color: line_color, fill_alpha: line_alpha, line_color: null };
      this.plot.scatter({ ...FIELDS, source: raw, ...look });
    } else this.plot.line({ ...FIELDS, source: raw, line_color, line_alpha, line_dash, line_width: isSmoothed ? 1 : 1.5 });
    if (isSmoothed) this.plot.line({ ...FIELDS, source: smooth, line_color, line_dash, line_width: 2, line_join: "round" });
    return { raw, smooth };
  }

  // A line of one point cannot be seen.
  addDot({ run, isEval }) {
    const source = makeSource();
    this.plot.scatter({ ...FIELDS, source, size: 6, marker: "circle", fill_color: color(run, isEval), line_color: null });
    return source;
  }

  // The figure as a canvas of its own, for a file.
  takeImage() {
    return this.view.export("png", true).canvas;
  }
}

function makeSource() {
  return new Bokeh.ColumnDataSource({ data: { x: [], y: [] } });
}

// A plot in the colours of the page; without ranges it shows all that is drawn.
export function makePlot(ranges = {}, isLog = false) {
  const ink = getComputedStyle(document.documentElement);
  const [text, grid] = [ink.getPropertyValue("--muted"), ink.getPropertyValue("--grid")];
  const plot = Bokeh.Plotting.figure({
    sizing_mode: "stretch_both", tools: "", toolbar_location: null, output_backend: "canvas", ...ranges,
    y_axis_type: isLog ? "log" : "linear",
    background_fill_color: null, border_fill_color: null, outline_line_color: null,
    min_border_left: 46, min_border_right: 12, min_border_top: 6, min_border_bottom: 20,
  });
  for (const axis of [...plot.xaxes, ...plot.yaxes]) {
    Object.assign(axis, {
      axis_line_color: null, major_tick_line_color: null, minor_tick_line_color: null,
      major_label_text_color: text, major_label_text_font_size: "11px", major_label_standoff: 4,
    });
    axis.ticker.desired_num_ticks = axis === plot.xaxes[0] ? 5 : 4;
    if (!(isLog && axis === plot.yaxes[0])) {
      axis.formatter = new Bokeh.BasicTickFormatter({ use_scientific: false });
      axis.formatter.doFormat = ticks; // 20k rather than 20000
    }
  }
  for (const line of [...plot.xgrids, ...plot.ygrids]) Object.assign(line, { grid_line_color: grid });
  return plot;
}

// The library has an element for each part of a chart, empty here, and rewrites its style sheet with every drawing: after
// each of them the browser works out all styles again.
function holdStill(view) {
  for (const part of view?.computed_renderer_views ?? []) part.update_position = () => {};
}
