// Several runs: a table of them, their curves over each other, seeds put together, and how their options differ.

import { BandChart } from "./band.js";
import { Chart } from "./chart.js";
import { h, replace } from "./dom.js";
import { ask, runs } from "./feed.js";
import { duration, goal, short, whole } from "./format.js";
import { color, legend } from "./palette.js";
import { namesOf } from "./series.js";
import { setState, state } from "./state.js";
import { sayPhase } from "./overview.js";

const COLUMNS = [
  ["name", "run", (run) => run.name],
  ["task", "task", (run) => run.task],
  ["seed", "seed", (run) => run.seed ?? -1],
  ["state", "state", (run) => run.phase],
  ["step", "steps", (run) => run.progress.step],
  ["score", "score", (run) => run.progress.score ?? -Infinity],
  ["eval", "eval score", (run) => run.progress.eval_score ?? -Infinity],
  ["rate", "steps/s", (run) => run.progress.env_rate],
  ["time", "elapsed", (run) => run.progress.elapsed_s],
];
const MAX_CONFIGS = 12; // beside each other
const NUMBERS = new Set(["seed", "step", "score", "eval", "rate", "time"]);

export function open(page) {
  const [table, charts, configs] = [h("div", { class: "scroll" }), h("div", {}), h("div", {})];
  const metric = state.metric || "episode/score";
  const names = [...new Set(["episode/score", "eval_episode/score", "episode/length", ...namesOf(state.run)])];
  const choice = h("select", { "aria-label": "metric", id: "metric", onchange: () => setState({ metric: choice.value }) }, names.map((name) => h("option", { value: name }, name)));
  choice.value = metric;
  page.append(
    h("div", { class: "head" }, h("h1", {}, "Runs")),
    table,
    h("div", { class: "row", style: "margin-top:16px" }, choice,
      h("button", { class: "plain", id: "group", "aria-pressed": String(state.group === "1"), title: "runs with equal options except the seed as mean and standard deviation", onclick: () => setState({ group: state.group === "1" ? "" : "1" }) }, "group seeds"),
      h("button", { class: "plain", onclick: () => setState({ run: sorted().map((run) => run.name) }) }, "show all"),
      h("button", { class: "plain", onclick: () => setState({ run: [state.run[0]] }) }, "show one")),
    charts,
    h("h2", {}, "Options that differ"),
    configs,
  );
  const chart = state.group === "1" ? new BandChart(metric) : new Chart({ title: metric, metric, tall: true, dots: state.run.length < 4 && metric.includes("episode/"), lines: state.run.map((run) => ({ run, metric })) });
  charts.append(legend(state.group === "1" ? [] : state.run), h("div", { class: "charts one" }, chart.element));
  drawConfigs(configs).catch(() => {}); // a run that has just gone: the page of the others opens by itself
  const update = () => {
    drawTable(table);
    chart.update?.();
  };
  update();
  return { update, remove: () => chart.remove() };
}

function sorted() {
  const isDown = state.sort.startsWith("-");
  const value = (COLUMNS.find(([key]) => key === state.sort.replace("-", "")) ?? COLUMNS[0])[2];
  const compare = (a, b) => (typeof value(a) === "number" ? value(a) - value(b) : value(a).localeCompare(value(b), "en", { numeric: true }));
  return [...runs.values()].sort((a, b) => (isDown ? -1 : 1) * compare(a, b));
}

function drawTable(table) {
  const sortBy = (key) => () => {
    const first = NUMBERS.has(key) ? `-${key}` : key;
    setState({ sort: state.sort === first ? (first.startsWith("-") ? key : `-${key}`) : first });
    drawTable(table);
  };
  const arrow = (key) => (state.sort === key ? " ↑" : state.sort === `-${key}` ? " ↓" : "");
  const head = COLUMNS.map(([key, label]) =>
    h("th", { class: NUMBERS.has(key) ? "number" : null, "aria-sort": arrow(key) ? (state.sort.startsWith("-") ? "descending" : "ascending") : null },
      h("button", { "data-sort": key }, label + arrow(key))));
  replace(table, h("table", { id: "runs" }, h("thead", {}, h("tr", {}, h("th", {}), head)), h("tbody", {}, sorted().map(drawRow))));
  for (const button of table.querySelectorAll("[data-sort]")) button.onclick = sortBy(button.dataset.sort);
  for (const box of table.querySelectorAll("input")) {
    box.checked = state.run.includes(box.dataset.run);
    box.onchange = () => {
      const others = state.run.filter((name) => name !== box.dataset.run);
      setState({ run: box.checked ? [...others, box.dataset.run] : others.length ? others : state.run });
    };
  }
  for (const button of table.querySelectorAll("[data-name]")) button.onclick = () => setState({ run: [button.dataset.name], tab: "overview" }, { push: true });
}

function drawRow(run) {
  const p = run.progress;
  const { unit, done, total } = goal(p);
  const steps = `${whole(done)}${total > 0 ? ` / ${short(total)}` : ""}${unit === "updates" ? " updates" : ""}`;
  const number = (text) => h("td", { class: "number" }, text);
  return h("tr", { style: `--color:${color(run.name)}` },
    h("td", {}, h("input", { type: "checkbox", "data-run": run.name, "aria-label": `show ${run.name}` })),
    h("td", {}, h("button", { class: "mini", "data-name": run.name, style: `color:${color(run.name)};font-size:13px` }, run.name)),
    h("td", {}, run.task), number(run.seed ?? "–"), h("td", {}, h("span", { class: `state ${run.state}` }, sayPhase(run))),
    number(steps), number(short(p.score, 4)), number(short(p.eval_score, 4)), number(short(p.env_rate)), number(duration(p.elapsed_s)));
}

async function drawConfigs(place) {
  if (state.run.length < 2) {
    place.replaceChildren(h("p", { class: "muted" }, "Choose two runs or more to see how their options differ."));
    return;
  }
  const chosen = state.run.slice(0, MAX_CONFIGS);
  const configs = await ask("configs", { run: chosen });
  const keys = [...new Set(Object.values(configs).flatMap(Object.keys))].filter((key) => key !== "logdir");
  const text = (run, key) => (key in (configs[run] ?? {}) ? String(configs[run][key]) : "–");
  const different = keys.filter((key) => new Set(chosen.map((run) => text(run, key))).size > 1);
  place.replaceChildren(
    different.length
      ? h("div", { class: "scroll" }, h("table", { id: "configs" },
          h("thead", {}, h("tr", {}, h("th", {}, "option"), chosen.map((run) => h("th", { style: `color:${color(run)}` }, run)))),
          h("tbody", {}, different.map((key) => h("tr", {}, h("td", {}, key), chosen.map((run) => h("td", {}, text(run, key))))))))
      : h("p", { class: "muted" }, "They have equal options."),
    chosen.length < state.run.length ? h("p", { class: "muted" }, `Of the first ${chosen.length} of ${state.run.length} runs.`) : "");
}
