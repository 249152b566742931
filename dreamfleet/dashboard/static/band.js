// The mean and the spread of the seeds of each experiment, computed on the server as `dreamfleet plot` does it.

import { h } from "./dom.js";
import { ask, decode, runs } from "./feed.js";
import { makePlot } from "./figure.js";
import { loadLibrary } from "./library.js";
import { color } from "./palette.js";
import { state } from "./state.js";

const EVERY_MS = 5000;

export class BandChart {
  constructor(metric) {
    this.metric = metric;
    this.canvas = h("div", { class: "canvas" });
    this.legend = h("span", { class: "readout" });
    this.element = h("figure", { class: "chart tall", "data-metric": metric },
      h("figcaption", {}, h("span", { class: "title" }, `${metric}: mean ± standard deviation over seeds`), this.legend),
      h("div", { class: "plot" }, this.canvas));
    this.loadedAt = -Infinity;
    this.timer = 0;
    this.update();
  }

  update() {
    if (this.timer) return;
    const wait = EVERY_MS - (performance.now() - this.loadedAt);
    if (wait > 0) {
      // These may be the last news: of runs that are over no more come.
      this.timer = setTimeout(() => { this.timer = 0; this.update(); }, wait);
      return;
    }
    this.loadedAt = performance.now();
    this.load().catch(() => {}); // tried again with the next news
  }

  async load() {
    const groups = new Map();
    for (const name of state.run) {
      const run = runs.get(name);
      if (!run) continue;
      const key = run.group || name;
      groups.set(key, [...(groups.get(key) ?? []), run]);
    }
    const bands = await Promise.all([...groups.values()].map(async (members) => {
      const answer = await ask("band", { run: members.map((run) => run.name), metric: this.metric, axis: state.axis === "hours" ? "hours" : "step" });
      return { label: `${members[0].group_label} (${members.length})`, color: color(members[0].name), ...answer };
    }));
    await loadLibrary();
    if (!this.isRemoved) this.draw(bands.filter((band) => band.x));
  }

  draw(bands) {
    this.document?.clear();
    this.canvas.replaceChildren();
    const plot = makePlot();
    for (const band of bands) {
      const [x, mean, std] = [band.x, band.mean, band.std].map(decode);
      plot.varea({ x, y1: mean.map((value, i) => value - std[i]), y2: mean.map((value, i) => value + std[i]), fill_color: band.color, fill_alpha: 0.18 });
      plot.line({ x, y: mean, line_color: band.color, line_width: 2 });
    }
    this.document = new Bokeh.Document();
    this.document.add_root(plot);
    Bokeh.embed.add_document_standalone(this.document, this.canvas);
    this.legend.replaceChildren(...bands.map((band) => h("b", { style: `color:${band.color}` }, band.label)));
    this.element.dataset.groups = bands.length;
  }

  remove() {
    this.isRemoved = true;
    clearTimeout(this.timer);
    this.document?.clear();
  }
}
