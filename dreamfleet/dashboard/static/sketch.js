// The lines of a chart alone, where the chart will have them: seen while the library starts.

import { h } from "./dom.js";

// Lines are {points: [xs, ys], color}; without a range there is nothing to draw.
export function sketch(lines, range, isLog) {
  const drawn = range ? lines.map(({ points, color }) => h("polyline", { points: place(points, range, isLog), stroke: color })) : [];
  return h("svg", { class: "sketch", viewBox: "0 0 1 1", preserveAspectRatio: "none" }, drawn);
}

function place([xs, ys], { low, high, bottom, top }, isLog) {
  const scale = isLog ? Math.log : (y) => y;
  const shown = xs.map((x, i) => [x, scale(ys[i])]).filter(([x, y]) => x >= low && x <= high && Number.isFinite(y));
  return shown.map(([x, y]) => `${(x - low) / (high - low)},${(scale(top) - y) / (scale(top) - scale(bottom))}`).join(" ");
}
