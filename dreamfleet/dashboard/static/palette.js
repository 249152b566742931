// Colours that people with any kind of colour vision tell apart (after Okabe and Ito), the same run always in the same.

import { h } from "./dom.js";

const COLORS = {
  light: ["#0072b2", "#d55e00", "#009e73", "#b3569a", "#b87f00", "#3a9bd0"],
  dark: ["#56b4e9", "#ff8a3d", "#2bd0a0", "#e39bc8", "#f0e442", "#9aa7ff"],
};
const INK = { light: "#1b1f24", dark: "#e6e9ec" };
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
const BORDERS = ["solid", "dashed", "dotted", "double"]; // the same, in a legend
const KEY = "dreamfleet.colors";

const places = new Map(JSON.parse(localStorage.getItem(KEY) ?? "[]"));

export const theme = () => document.documentElement.dataset.theme;

function place(name) {
  if (!places.has(name)) {
    places.set(name, places.size);
    localStorage.setItem(KEY, JSON.stringify([...places].slice(-500)));
  }
  return places.get(name);
}

// That of a run; of its evaluation half way to the colour of text, so that the two are told apart where they overlap.
export function color(name, isEval = false) {
  const colors = COLORS[theme()];
  const own = colors[place(name) % colors.length];
  return isEval ? mix(own, INK[theme()]) : own;
}

function mix(one, other) {
  const middle = (i) => Math.round((parseInt(one.slice(i, i + 2), 16) + parseInt(other.slice(i, i + 2), 16)) / 2);
  return `rgb(${middle(1)} ${middle(3)} ${middle(5)})`;
}

// Beyond six runs the dash tells those apart that are shown together in one colour.
export const dash = (name, shown) => DASHES[turn(name, shown)];

export function legend(shown) {
  const line = (name) => h("i", { style: `color:${color(name)};border-top-style:${BORDERS[turn(name, shown)]}` });
  return h("div", { class: "legend" }, shown.map((name) => h("span", {}, line(name), name)));
}

function turn(name, shown) {
  const [colors, own] = [COLORS.light.length, place(name)];
  const before = new Set(shown.map(place).filter((other) => other < own && other % colors === own % colors));
  return before.size % DASHES.length;
}

// Run colours are given out in the order of names when a page is opened for the first time.
export function meet(names) {
  [...names].sort().forEach(place);
}
