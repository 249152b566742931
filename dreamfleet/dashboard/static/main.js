// The frame around the pages: tabs, controls, the runs at the side, and what to do when something changes.

import { latestX } from "./chart.js";
import { h, replace } from "./dom.js";
import * as dreams from "./dreams.js";
import { ask, connect, isOver, on, runs } from "./feed.js";
import * as fleet from "./fleet.js";
import * as metrics from "./metrics.js";
import * as overview from "./overview.js";
import { loadLibrary } from "./library.js";
import { meet } from "./palette.js";
import { loadNames, reloadAll } from "./series.js";
import * as compare from "./compare.js";
import { drawSidebar } from "./sidebar.js";
import { onState, range, setState, state } from "./state.js";

const PAGES = { overview, metrics, runs: compare, fleet, dreams };
const TITLES = { overview: "Overview", metrics: "Metrics", runs: "Runs", fleet: "Fleet", dreams: "Dreams" };
const WINDOWS = [1, 3, 5, 10, 20, 50, 100, 200, 500, 1000];
const SAY_MS = 8000;
const SLACK = 0.02; // of a range: it is dragged to the newest point by hand
const page = document.getElementById("page");
let current = null; // what the page in view has returned: {update, remove}

function drawTabs() {
  const buttons = Object.keys(PAGES).map((tab) =>
    h("button", { "data-tab": tab, "aria-current": tab === state.tab ? "page" : null, onclick: () => setState({ tab }, { push: true }) }, TITLES[tab]),
  );
  document.getElementById("tabs").replaceChildren(...buttons);
}

function drawControls() {
  const axes = { step: "env step", update: "update", hours: "hours" };
  const axis = h("select", { "aria-label": "x-axis", onchange: () => setState({ axis: axis.value, start: "", end: "" }) },
    Object.entries(axes).map(([value, label]) => h("option", { value }, label)));
  axis.value = state.axis;
  const shown = h("output", {}, smoothText(state.smooth));
  const slider = h("input", { type: "range", min: 0, max: WINDOWS.length - 1, "aria-label": "smoothing: points in the running mean", id: "smoothing",
    oninput: () => (shown.textContent = smoothText(WINDOWS[slider.value])),
    onchange: () => setState({ smooth: String(WINDOWS[slider.value]) }) });
  slider.value = Math.max(0, WINDOWS.indexOf(Number(state.smooth)));
  const isZoomed = state.start !== "" || state.end !== "";
  document.getElementById("controls").replaceChildren(
    ...(isZoomed ? [
      h("button", { class: "plain", "aria-pressed": String(state.follow === "1"), title: "move the range along with the newest data (f)", onclick: toggleFollow }, "follow"),
      h("button", { class: "plain", id: "reset", title: "show all (Esc in a chart, or double-click)", onclick: () => setState({ start: "", end: "" }) }, "all"),
    ] : []),
    h("label", { class: "wide" }, h("span", {}, "x"), axis),
    h("label", { class: "wide", title: "running mean over so many points" }, h("span", {}, "smoothing"), slider, shown),
    h("button", { class: "icon", id: "theme", title: "dark or light (t)", "aria-label": "dark or light", onclick: toggleTheme }, "◐"),
  );
}

const smoothText = (points) => (Number(points) > 1 ? `${points} pt` : "off");

function toggleFollow() {
  setState({ follow: state.follow === "1" ? "0" : "1" });
  const { latest } = latestX();
  if (state.follow === "1" && state.start !== "" && state.end !== "" && latest > Number(state.end)) moveRange(latest);
}

function toggleTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("dreamfleet.theme", theme);
  setState({ theme: state.theme ? theme : "" });
  openPage();
}

function openPage() {
  current?.remove?.();
  drawTabs();
  drawControls();
  drawSidebar();
  page.replaceChildren();
  noteEnd();
  document.title = `${state.run[0] ?? "no runs"} · ${TITLES[state.tab] ?? "Dreamfleet"}`;
  current = runs.size ? { isEmpty: false, ...PAGES[state.tab].open(page) } : openNothing();
}

function openNothing() {
  page.append(h("div", { class: "nothing" }, h("h1", {}, "No runs yet"),
    h("p", {}, "They appear here by themselves when they start: ", h("code", {}, "dreamfleet train --task gym_CartPole-v1"))));
  return { isEmpty: true };
}

// Without a choice the page shows the run that was last alive.
function chooseRuns() {
  const known = state.run.filter((name) => runs.has(name));
  const missing = state.run.filter((name) => !runs.has(name));
  if (!runs.size) return;
  if (missing.length) say(`Not here, or not any more: ${missing.join(", ")}`);
  if (known.length) return missing.length ? setState({ run: known }) : undefined;
  const alive = [...runs.values()].filter((run) => run.state === "running" || run.state === "starting");
  setState({ run: [(alive.at(-1) ?? [...runs.values()].at(-1)).name] });
}

onState((changed) => {
  if (["run", "axis", "smooth"].some((key) => changed.has(key))) connect();
  if (["axis", "smooth", "start", "end"].some((key) => changed.has(key))) reloadAll();
  if (["run", "tab", "axis", "smooth", "pin", "log", "group", "metric"].some((key) => changed.has(key))) {
    if (changed.has("run")) loadNames(state.run).catch(() => {}).then(openPage);
    else openPage();
  } else if (!isFollowing) drawControls();
});

// A followed range keeps its width, and moves on with the newest point.
let isFollowing = false;
let followed = ""; // the end of the range where it was moved to last
on("rows", () => {
  const { start, end } = range();
  if (state.follow !== "1" || end === Infinity || start === -Infinity) return;
  const { latest, before } = latestX();
  const width = end - start;
  const isInPast = before > end + SLACK * width && state.end !== followed;
  if (latest > end && !isInPast) moveRange(latest);
});

function moveRange(end) {
  const { start, end: endBefore } = range();
  isFollowing = true;
  followed = String(end);
  setState({ start: String(end - (endBefore - start)), end: followed });
  isFollowing = false;
}

// What is not there by the end of a run will not come.
const noteEnd = () => page.classList.toggle("over", state.run.every((name) => isOver(runs.get(name))));

on("runs", ({ changed }) => {
  noteEnd();
  meet(changed.map((run) => run.name));
  const hasOther = !state.run.length || state.run.some((name) => !runs.has(name));
  if (hasOther) chooseRuns();
  if (!current || current.isEmpty !== !runs.size) openPage();
  drawSidebar();
  current?.update?.();
});
on("fleet", () => current?.updateFleet?.());

// One line at the bottom: as long as the connection is lost, or for a while.
const notice = document.getElementById("notice");
let silence = 0;
function say(text, isLasting = false) {
  clearTimeout(silence);
  notice.hidden = !text;
  replace(notice, h("span", {}, text));
  if (!isLasting) silence = setTimeout(() => (notice.hidden = true), SAY_MS);
}

let hasEnded = false;
let isLost = false;
on("connection", (what) => {
  if (what === "bye") hasEnded = true;
  if (what === "open") hasEnded = false;
  const wasLost = isLost;
  isLost = what === "lost" || what === "bye";
  if (isLost) say(hasEnded ? "The dashboard has ended. What you see is its last state." : "Connection lost, trying again …", true);
  else if (wasLost) say("");
});

addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const tabs = Object.keys(PAGES);
  if (/^[1-5]$/.test(event.key)) setState({ tab: tabs[Number(event.key) - 1] }, { push: true });
  else if (event.key === "t") toggleTheme();
  else if (event.key === "f") toggleFollow();
  else if (event.key === "/") {
    event.preventDefault();
    (page.querySelector("input[type=search]") ?? document.querySelector("#sidebar input[type=search]"))?.focus();
  }
});

document.getElementById("menu").addEventListener("click", (event) => {
  const isOpen = document.getElementById("sidebar").classList.toggle("open");
  event.currentTarget.setAttribute("aria-expanded", String(isOpen));
});
page.addEventListener("click", () => document.getElementById("sidebar").classList.remove("open"));

async function start() {
  drawTabs();
  drawControls();
  const [asked, names] = [state.run, loadNames(state.run).catch(() => {})];
  for (const run of await ask("runs")) runs.set(run.name, run);
  meet(runs.keys());
  chooseRuns();
  if (state.run !== asked) return; // a page of other runs opens by itself
  connect();
  await names;
  openPage();
}

start().catch(() => say("The dashboard does not answer. Is it still running?", true));
setTimeout(() => loadLibrary().catch(() => {}), 2000); // pages without charts lead to those with them
