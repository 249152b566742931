// All metrics, found by name, grouped by prefix; only the charts on screen are drawn.

import { Chart } from "./chart.js";
import { h } from "./dom.js";
import { matcher } from "./format.js";
import { namesOf, onNames } from "./series.js";
import { setState, state } from "./state.js";

const ORDER = ["episode", "eval_episode", "train", "report", "eval", "learner", "actor", "replay", "env", "logger"];
const closed = new Set(JSON.parse(sessionStorage.getItem("dreamfleet.closed") ?? "[]")); // groups
let refresh = () => {};
onNames(() => refresh());

export function open(page) {
  let charts = [];
  const groups = h("div", {});
  const count = h("span", { class: "muted" });
  const search = h("input", { type: "search", value: state.q, placeholder: "Search by name or regular expression", "aria-label": "search metrics", id: "search",
    oninput: () => { setState({ q: search.value }); draw(); } });
  page.append(h("div", { class: "row" }, search, count), groups);

  const makeCharts = (names) => {
    const made = names.map((metric) => new Chart({ title: metric, metric, lines: state.run.map((run) => ({ run, metric })) }));
    charts.push(...made);
    return h("div", { class: "charts" }, made.map((chart) => chart.element));
  };

  function draw() {
    charts.forEach((chart) => chart.remove());
    charts = [];
    const all = namesOf(state.run);
    const found = all.filter(matcher(search.value));
    count.textContent = found.length === all.length ? `${all.length} metrics` : `${found.length} of ${all.length} metrics`;
    const pinned = state.pin.filter((name) => all.includes(name));
    const sections = pinned.length ? [h("h2", {}, "Pinned"), makeCharts(pinned)] : [];
    for (const [prefix, names] of group(found)) sections.push(section(prefix, names, Boolean(search.value)));
    groups.replaceChildren(...sections);
  }

  function section(prefix, names, isSearching) {
    const isOpen = isSearching || !closed.has(prefix);
    const details = h("details", { class: "group", open: isOpen }, h("summary", {}, prefix, h("span", {}, ` ${names.length}`)));
    let isFilled = isOpen;
    if (isOpen) details.append(makeCharts(names));
    details.addEventListener("toggle", () => {
      if (isSearching) return;
      details.open ? closed.delete(prefix) : closed.add(prefix);
      sessionStorage.setItem("dreamfleet.closed", JSON.stringify([...closed]));
      if (details.open && !isFilled) details.append(makeCharts(names));
      isFilled ||= details.open;
    });
    return details;
  }

  refresh = draw;
  draw();
  return { remove: () => { refresh = () => {}; charts.forEach((chart) => chart.remove()); } };
}

function group(names) {
  const groups = new Map();
  for (const name of names) {
    const prefix = name.includes("/") ? name.split("/")[0] : "run";
    groups.set(prefix, [...(groups.get(prefix) ?? []), name]);
  }
  const rank = (prefix) => (ORDER.includes(prefix) ? ORDER.indexOf(prefix) : ORDER.length);
  return [...groups].sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b)).map(([prefix, all]) => [prefix, all.sort()]);
}
