// Predicted and true values of a vector observation as lines, one small picture for each element.

import { h } from "./dom.js";
import { short } from "./format.js";

const [WIDTH, HEIGHT] = [240, 90];

export function drawSignals({ truth, prediction }) {
  const sequences = truth.length;
  const place = h("div", { class: "signals" });
  const choice = h("select", { "aria-label": "sequence", onchange: () => draw(Number(choice.value)) }, truth.map((_, i) => h("option", { value: i }, `sequence ${i + 1} of ${sequences}`)));
  const draw = (at) => place.replaceChildren(...truth[at][0].map((_, element) => drawElement(truth[at], prediction[at], element)));
  draw(0);
  return h("div", { "data-ready": "true" }, h("div", { class: "row", style: "margin:0 0 8px" }, choice,
    h("span", { class: "legend", style: "margin:0" }, h("span", {}, h("i", { style: "color:var(--ink)" }), "truth"), h("span", {}, h("i", { style: "color:var(--accent)" }), "prediction"),
      h("span", {}, "shaded: imagined"))), place);
}

function drawElement(truth, prediction, element) {
  const [a, b] = [truth, prediction].map((rows) => rows.map((row) => row[element]));
  const values = [...a, ...b].filter((value) => value !== null);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const span = high - low || 1;
  const x = (i) => (WIDTH * i) / Math.max(1, truth.length - 1);
  const y = (value) => 8 + (HEIGHT - 16) * (1 - (value - low) / span);
  const line = (numbers) => numbers.map((value, i) => (value === null ? "" : `${x(i).toFixed(1)},${y(value).toFixed(1)}`)).join(" ");
  const half = x(Math.max(1, Math.floor(truth.length / 2)) - 0.5);
  const style = (color, width) => `fill:none;stroke:var(${color});stroke-width:${width};vector-effect:non-scaling-stroke`;
  return h("div", {}, h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `element ${element}` },
    h("rect", { x: half, y: 0, width: WIDTH - half, height: HEIGHT, style: "fill:var(--accent);opacity:0.08" }),
    h("polyline", { points: line(a), style: style("--ink", 1.5) }), h("polyline", { points: line(b), style: style("--accent", 2) })),
    h("span", { class: "phase" }, `[${element}]  ${short(low)} to ${short(high)}`));
}
