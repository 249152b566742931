// The runs at the side: a click looks at one, its box adds it to the charts.

import { h, replace } from "./dom.js";
import { runs } from "./feed.js";
import { goal, matcher } from "./format.js";
import { color } from "./palette.js";
import { setState, state } from "./state.js";

const sidebar = document.getElementById("sidebar");
const search = h("input", { type: "search", placeholder: "Filter runs", "aria-label": "filter runs", oninput: () => drawSidebar() });
const list = h("div", {});

export function drawSidebar() {
  if (!sidebar.contains(list)) sidebar.replaceChildren(search, list);
  const isFound = matcher(search.value);
  const shown = [...runs.values()].filter((run) => isFound(run.name) || isFound(run.task));
  replace(list, shown.map(drawRun));
  for (const box of list.querySelectorAll("input")) box.checked = state.run.includes(box.dataset.run);
}

function drawRun(run) {
  const done = goal(run.progress).share ?? 0;
  const isChosen = state.run.includes(run.name);
  return h(
    "div",
    { class: `run${state.run[0] === run.name ? " focus" : ""}${isChosen ? "" : " dim"}`, style: `--color:${color(run.name)}`, title: `${run.name} · ${run.task} · ${run.phase}` },
    h("input", { type: "checkbox", "data-run": run.name, "aria-label": `show ${run.name} in charts` }),
    h("button", { "data-name": run.name, "aria-current": state.run[0] === run.name ? "true" : null }, h("bdi", {}, run.name)),
    h("span", { class: `state ${run.state}`, role: "img", "aria-label": run.phase }),
    h("div", { class: "bar" }, h("i", { style: `width:${100 * done}%` })),
  );
}

sidebar.addEventListener("click", (event) => {
  const { run, name } = event.target.dataset;
  if (name) setState({ run: [name] }, { push: true });
  else if (run) {
    const others = state.run.filter((other) => other !== run);
    setState({ run: others.length === state.run.length ? [...state.run, run] : others.length ? others : state.run });
    drawSidebar();
  }
});
