// The page that answers how a run is doing.

import { Chart } from "./chart.js";
import { h, replace } from "./dom.js";
import { isOver, runs } from "./feed.js";
import { ago, duration, goal, percent, short, whole } from "./format.js";
import { legend } from "./palette.js";
import { namesOf, onNames } from "./series.js";
import { state } from "./state.js";

const LOSSES = /^train\/loss\//;
let refresh = () => {};
onNames(() => refresh());

export function open(page) {
  const [head, charts] = [h("div", {}), h("div", {})];
  page.append(head, charts);
  let drawn = null;
  let all = [];
  const draw = () => {
    const names = chartNames();
    if (names.join() === drawn) return;
    drawn = names.join();
    all.forEach((chart) => chart.remove());
    all = [];
    charts.replaceChildren(...sections(names).flatMap(([title, made]) => {
      all.push(...made);
      return made.length ? [h("h2", {}, title), h("div", { class: "charts" }, made.map((chart) => chart.element))] : [];
    }));
  };
  refresh = draw;
  const update = () => drawHead(head);
  update();
  draw();
  return { update, remove: () => { refresh = () => {}; all.forEach((chart) => chart.remove()); } };
}

function chartNames() {
  return namesOf(state.run).filter((name) => LOSSES.test(name)).sort((a, b) => (b === "train/loss/total") - (a === "train/loss/total") || a.localeCompare(b));
}

function sections(losses) {
  const lines = (metric, isEval = false) => state.run.map((run) => ({ run, metric, isEval }));
  const make = (title, metric, options = {}) => new Chart({ title, metric, lines: lines(metric), ...options });
  const episodes = (title, name, tall) => new Chart({ title, metric: `episode/${name}`, dots: true, tall,
    lines: [...lines(`episode/${name}`), ...lines(`eval_episode/${name}`, true)] });
  const pinned = state.pin.map((metric) => make(metric, metric));
  return [
    ["Pinned", pinned],
    ["Episodes", [episodes("Score", "score", true), episodes("Episode length", "length", false)]],
    ["Rates", [make("Env steps/s", "actor/steps_per_s"), make("Updates/s", "learner/updates_per_s"), make("Policy batch size", "actor/batch")]],
    ["Losses", losses.map((metric) => make(metric.replace(LOSSES, ""), metric))],
  ];
}

function drawHead(head) {
  const run = runs.get(state.run[0]);
  if (!run) return;
  const p = run.progress;
  const { unit, done, total, share } = goal(p);
  replace(
    head,
    h("div", { class: "head" }, h("h1", {}, run.name), h("span", { class: `state ${run.state}`, id: "phase" }, sayPhase(run)),
      h("span", { class: "muted" }, [run.task, run.seed === null ? "" : `seed ${run.seed}`].filter(Boolean).join(" · "))),
    run.bottleneck && h("div", { class: "sentence", id: "bottleneck" }, boldHead(run.bottleneck)),
    h("div", { class: "progress" },
      share !== null && h("div", { class: "track", role: "progressbar", "aria-valuenow": Math.round(100 * share), "aria-label": unit }, h("i", { style: `width:${100 * share}%` })),
      h("span", {}, h("b", { id: "step" }, whole(done)), share !== null ? ` / ${whole(total)} ${unit} · ${percent(share)}` : ` ${unit}`),
      h("span", { class: "muted" }, isOver(run) ? `${duration(p.elapsed_s)} in all` : `${duration(p.elapsed_s)} so far${p.eta_s === null ? "" : ` · ETA ${duration(p.eta_s)}`}`)),
    h("div", { class: "tiles" },
      tile("score", short(p.score, 4), "mean of 20 episodes"),
      tile("eval score", short(p.eval_score, 4)),
      tile("env steps/s", short(p.env_rate)),
      tile("updates/s", short(p.update_rate)),
      tile("train ratio", [short(p.ratio), p.target_ratio > 0 && h("small", {}, ` of ${short(p.target_ratio)}`)], "trained steps per env step, held and wanted", p.target_ratio > 0 ? p.ratio / p.target_ratio : null),
      tile("replay", [short(p.replay_fill), h("small", {}, ` of ${short(p.replay_capacity)}`)], "steps in the replay buffer", p.replay_capacity > 0 ? p.replay_fill / p.replay_capacity : null),
      tile("episodes", short(p.episodes)),
      tile("updates", short(p.updates))),
    state.run.length > 1 && legend(state.run),
  );
}

export function sayPhase(run) {
  if (run.state === "silent") return `no sign of life since ${ago(run.updated).replace(" ago", "")}`;
  return run.phase;
}

export function boldHead(sentence) {
  const [first, ...rest] = sentence.split(": ");
  return rest.length ? [h("b", {}, `${first}: `), rest.join(": ")] : sentence;
}

function tile(label, value, title = "", share = null) {
  return h("div", { class: "tile", title }, h("span", {}, label), h("b", {}, value),
    share !== null && h("div", { class: "meter" }, h("i", { style: `width:${Math.min(100, Math.max(0, 100 * share))}%` })));
}
