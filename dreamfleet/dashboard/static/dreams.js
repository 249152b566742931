// What the world model predicts beside what happened, and the latest episodes; past reports can be stepped through.

import { h } from "./dom.js";
import { ask, fleets, isOver, runs, url } from "./feed.js";
import { whole } from "./format.js";
import { Player } from "./player.js";
import { drawSignals } from "./signals.js";
import { state } from "./state.js";

export function open(page) {
  const place = h("div", { class: "dreams" });
  page.append(h("div", { class: "head" }, h("h1", {}, "Dreams and episodes"), h("span", { class: "muted" }, state.run[0] ?? "")), place);
  const cards = new Map(); // name -> Card
  const update = () => {
    const reports = fleets.get(state.run[0])?.reports ?? [];
    const names = [...new Set(reports.map((report) => report.name))].sort((a, b) => b.includes("open_loop") - a.includes("open_loop") || a.startsWith("eval") - b.startsWith("eval") || a.localeCompare(b));
    if (!names.length && !place.querySelector(".nothing")) {
      place.replaceChildren(h("p", { class: "nothing" }, `No reports${isOver(runs.get(state.run[0])) ? " in this run" : " yet"}. The agent writes one every run.report_every seconds, and the logger keeps the last logger.reports of them.`));
    }
    if (names.length) place.querySelector(".nothing")?.remove();
    for (const name of names) {
      if (!cards.has(name)) {
        cards.set(name, new Card(name));
        place.append(cards.get(name).element);
      }
      cards.get(name).update(reports.filter((report) => report.name === name));
    }
  };
  update();
  return { updateFleet: update, remove: () => cards.forEach((card) => card.remove()) };
}

// All kept reports of one name; it stays at the newest one until another is chosen.
class Card {
  constructor(name) {
    this.stage = h("div", {});
    this.label = h("span", { class: "phase" });
    this.reports = [];
    this.at = -1;
    const step = (by) => () => this.show(Math.min(this.reports.length - 1, Math.max(0, this.at + by)));
    this.element = h("section", { class: "card player", "data-report": name },
      h("div", { class: "row", style: "margin:0 0 8px" }, h("b", {}, sayName(name)), h("span", { style: "margin-left:auto" }), this.label,
        h("button", { class: "plain", title: "report before", "aria-label": "report before", onclick: step(-1) }, "‹"),
        h("button", { class: "plain", title: "next report", "aria-label": "next report", onclick: step(1) }, "›")),
      this.stage);
  }

  update(reports) {
    const wasLatest = this.at === this.reports.length - 1;
    const file = this.reports[this.at]?.file;
    const isSame = reports.length === this.reports.length && reports.at(-1)?.file === this.reports.at(-1)?.file;
    this.reports = reports;
    if (isSame) return;
    const kept = reports.findIndex((report) => report.file === file);
    this.show(wasLatest || kept < 0 ? reports.length - 1 : kept);
  }

  async show(at) {
    this.at = at;
    const report = this.reports[at];
    if (!report) return;
    this.label.textContent = `step ${whole(report.step)} · ${at + 1} of ${this.reports.length}`;
    if (report.file === this.shown) return;
    this.shown = report.file;
    const address = { run: state.run[0], name: report.name, file: report.file };
    if (report.kind === "signals") {
      const data = await ask("report", address).catch(() => null);
      if (data && this.shown === report.file) this.stage.replaceChildren(drawSignals(data));
      return;
    }
    this.player?.remove();
    this.player = new Player(report, url("report", address), report.name.includes("open_loop"));
    this.stage.replaceChildren(this.player.element);
  }

  remove() {
    this.player?.remove();
  }
}

function sayName(name) {
  const key = name.replace(/^(report|eval)\.open_loop(_signals)?\./, "");
  const where = name.startsWith("eval.") ? " (eval replay)" : "";
  if (name.includes("open_loop")) return `Open loop: ${key}${where}`;
  return { "episode.video": "Training episode", "eval_episode.video": "Eval episode" }[name] ?? name;
}
