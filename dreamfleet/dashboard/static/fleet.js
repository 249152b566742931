// The roles of a run: what they do, who waits for whom, what went wrong, and their logs.

import { h, replace } from "./dom.js";
import { ask, fleets, runs } from "./feed.js";
import { bytes, percent, short, whole } from "./format.js";
import { boldHead, sayPhase } from "./overview.js";
import { state } from "./state.js";

// The picture of docs/architecture.md, in units of its own.
const BOXES = {
  actor: [318, 66, 134, 50], learner: [318, 150, 134, 50], replay: [582, 78, 130, 102], logger: [318, 242, 134, 60],
};
const EDGES = [
  ["env", "actor", "M166 87 H318", [238, 79]],
  ["actor", "replay", "M452 98 H582", [517, 90]],
  ["replay", "learner", "M582 162 H452", [517, 180]],
  ["agent", "logger", "M385 214 V242", [385, 232]],
  ["env", "logger", "M166 275 H318", [242, 268]],
  ["replay", "logger", "M647 180 V275 H452", [550, 268]],
];
const WARM = 0.15;

export function open(page) {
  const logs = makeLogs();
  const faults = makeFaults();
  const parts = { head: h("div", {}), picture: h("div", { class: "picture-scroll" }), limiter: h("div", {}), roles: h("div", { class: "scroll" }) };
  page.append(
    parts.head,
    h("div", { class: "fleet" }, h("div", { class: "card" }, parts.picture), h("div", { class: "card" }, parts.limiter)),
    h("h2", {}, "Roles"), parts.roles,
    h("h2", {}, "Recent faults"), faults.element,
    h("h2", {}, "Logs"), logs.element,
  );
  let seen = "";
  const update = () => {
    const [run, fleet] = [runs.get(state.run[0]), fleets.get(state.run[0])];
    if (!run || !fleet) return;
    drawHead(parts.head, run, fleet);
    replace(parts.picture, drawPicture(fleet));
    replace(parts.limiter, drawLimiter(fleet.limiter));
    replace(parts.roles, drawRoles(fleet));
    logs.update(fleet);
    // A restart is counted before the log says so, which it does by the time the role runs.
    const now = [run.state, ...fleet.roles.map((role) => `${role.name} ${role.state} ${role.restarts}`)].join();
    if (now !== seen) faults.load().catch(() => (seen = "")); // again with the next news
    seen = now;
  };
  update();
  return { update, updateFleet: update };
}

function drawHead(head, run, fleet) {
  const isBad = run.state === "failed" || fleet.roles.some((role) => ["dead", "restarting"].includes(role.state) && run.state === "running");
  replace(head,
    h("div", { class: "head" }, h("h1", {}, run.name), h("span", { class: `state ${run.state}` }, sayPhase(run)),
      h("span", { class: "muted" }, `${fleet.roles.filter((role) => role.state === "running").length} of ${fleet.roles.length} roles running`)),
    h("div", { class: `sentence${isBad ? " bad" : ""}`, id: "bottleneck" }, boldHead(run.bottleneck || `${sayPhase(run)}`)));
}

function drawPicture(fleet) {
  const envs = fleet.roles.filter((role) => role.kind === "env");
  const role = (kind) => fleet.roles.find((other) => other.kind === kind) ?? { state: "elsewhere" };
  const agent = role("agent");
  const part = { state: agent.state }; // what they cost is that of their process
  const shown = { actor: part, learner: part, replay: role("replay"), logger: role("logger") };
  const edges = new Map(fleet.edges.map((edge) => [[edge.for, edge.who].sort().join(), edge]));
  return h("svg", { class: "picture", viewBox: "0 0 728 310", role: "img", "aria-label": "roles and who waits for whom" },
    h("g", { class: "outer" }, h("rect", { x: 304, y: 30, width: 162, height: 184, rx: 8 }), h("rect", { x: 14, y: 6, width: 152, height: 296, rx: 8 })),
    h("text", { x: 312, y: 45, class: "small" }, `agent process · ${agent.state}`),
    h("text", { x: 312, y: 59, class: "small" }, cost(agent)),
    EDGES.map(([a, b, path, at]) => drawEdge(edges.get([a, b].sort().join()), path, at)),
    Object.entries(BOXES).map(([name, box]) => drawNode(name, box, shown[name], fleet.parts[name])),
    drawEnvs(envs, fleet.parts.env));
}

function drawEdge(edge, path, [x, y]) {
  const heat = !edge || edge.share < WARM ? "" : edge.is_cause ? " hot" : " warm";
  return h("g", {}, h("path", { class: `edge${heat}`, d: path }, edge && h("title", {}, `${edge.role} waits: ${edge.what}`)),
    heat && h("text", { class: `edge-label${heat}`, x, y }, `${edge.who} waits ${percent(edge.share)}`, h("title", {}, `${edge.who} waits for ${edge.for}`)));
}

const isKnown = (value) => value !== null && value !== undefined;
const cost = (role) => (isKnown(role.cpu) && isKnown(role.memory_mb) ? `${percent(role.cpu)} CPU · ${bytes(role.memory_mb)}` : "");

function drawNode(name, [x, y, width, height], role, part) {
  const facts = [isKnown(part?.rate) && `${short(part.rate)} ${part.unit}`, cost(role)].filter(Boolean);
  return h("g", { class: `node ${role.state}`, "data-role": name },
    h("rect", { x, y, width, height, rx: 6 }),
    h("text", { x: x + 10, y: y + 20, "font-weight": 600 }, name),
    facts.map((fact, i) => h("text", { x: x + 10, y: y + 36 + 15 * i, class: "small" }, fact)));
}

const where = (role) => (role.machine ? ` on ${role.machine}` : "");

// One small box for each worker, many of them smaller ones.
function drawEnvs(envs, part) {
  const columns = envs.length > 48 ? 12 : envs.length > 10 ? 6 : 2;
  const width = 128 / columns;
  const height = Math.min(34, 240 / Math.max(1, Math.ceil(envs.length / columns)));
  return h("g", {},
    h("text", { x: 22, y: 24, "font-weight": 600 }, `${envs.length} env ${envs.length === 1 ? "worker" : "workers"}`),
    h("text", { x: 22, y: 40, class: "small" }, part?.rate ? `${short(part.rate, 2)} ${part.unit}` : ""),
    envs.map((env, i) => {
      const [x, y] = [22 + width * (i % columns), 50 + height * Math.floor(i / columns)];
      return h("g", { class: `node ${env.state}`, "data-role": env.name },
        h("rect", { x, y, width: width - 3, height: height - 3, rx: 3 }, h("title", {}, `${env.name}${where(env)}: ${env.state}`)),
        columns === 2 && h("text", { x: x + 7, y: y + height / 2 + 3, class: "small" }, env.name.split("/").at(-1)));
    }));
}

function drawLimiter(limiter) {
  if (!limiter) return h("p", { class: "muted" }, "The limiter is not known yet.");
  const isLimited = limiter.target > 0;
  const share = Math.min(1, Math.max(0, (limiter.diff - limiter.low) / (limiter.high - limiter.low)));
  return [
    h("h2", {}, "Limiter: inserts against samples"),
    isLimited ? [h("div", { class: "gauge", role: "meter", "aria-valuenow": percent(share), "aria-label": "limiter" }, h("div", { class: "track" }), h("div", { class: "needle", style: `left:${100 * share}%` })),
      h("div", { class: "ends" }, h("span", {}, "learner must wait"), h("span", {}, "acting must wait"))] : h("p", { class: "muted" }, "No train ratio is set: nobody waits."),
    h("dl", { class: "facts" },
      ...[["inserts", `${whole(limiter.inserts)} steps`], ["samples", `${whole(limiter.samples)} sequences`],
        ["train ratio held", short(limiter.ratio, 4)], ["train ratio wanted", isLimited ? short(limiter.target, 4) : "–"]]
        .flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)])),
  ];
}

function drawRoles(fleet) {
  const number = (text) => h("td", { class: "number" }, text);
  return h("table", { id: "roles" },
    h("thead", {}, h("tr", {}, ["role", "state", "restarts", "heartbeat", "CPU", "memory", "waits for", "last exit"].map((title, i) => h("th", { class: i > 1 && i < 6 ? "number" : null }, title)))),
    h("tbody", {}, fleet.roles.map((role) => h("tr", { "data-role": role.name },
      h("td", {}, role.name, h("span", { class: "muted" }, where(role))), h("td", {}, h("span", { class: `state ${role.state}` }, role.state)), number(role.restarts),
      number(role.heartbeat_age_s === null ? "–" : `${Math.round(role.heartbeat_age_s)} s`),
      number(isKnown(role.cpu) ? percent(role.cpu) : "–"),
      number(isKnown(role.memory_mb) ? bytes(role.memory_mb) : "–"),
      h("td", { class: "wrap" }, role.waits.map((wait) => wait.text).join(", ") || "–"), h("td", {}, role.exit ?? "–")))));
}

function makeFaults() {
  const element = h("div", {});
  let asked = 0;
  const load = async () => {
    const number = ++asked;
    const faults = await ask("faults", { run: state.run[0] });
    if (number !== asked) return;  // a later answer was quicker
    replace(element, faults.length ? faults.map(drawFault) : h("p", { class: "muted" }, "None."));
  };
  return { element, load };
}

function drawFault(fault) {
  return h("details", { class: "fault card", style: "margin-bottom:6px;padding:5px 12px" },
    h("summary", {}, h("b", {}, fault.role), ` ${fault.what} `, h("span", { class: "muted" }, fault.time)),
    fault.trace ? h("pre", { class: "log" }, fault.trace) : h("p", { class: "muted" }, "The process was ended from outside: its log has no traceback."));
}

// The end of one role's log. It moves on with the run unless somebody has scrolled up to read.
function makeLogs() {
  const text = h("pre", { class: "log", tabindex: "0", "aria-label": "log" });
  const choice = h("select", { "aria-label": "role", id: "log-role" });
  const search = h("input", { type: "search", placeholder: "Search in the log", "aria-label": "search log", id: "log-search" });
  let asked = 0;
  const load = async () => {
    if (!choice.value) return;  // no role is known yet
    const [number, isAtEnd] = [++asked, text.scrollHeight - text.scrollTop - text.clientHeight < 20];
    const { roles: logs, lines } = await ask("log", { run: state.run[0], role: choice.value, search: search.value });
    if (number !== asked) return;  // another role or search was asked for meanwhile
    const content = lines.join("\n") || (logs.includes(choice.value) ? "Nothing found." : "There is no log of this role.");
    if (content === text.textContent) return;
    text.textContent = content;
    if (isAtEnd) text.scrollTop = text.scrollHeight;
  };
  const reload = () => load().catch(() => {}); // the stream tells when the server or the run is back
  choice.onchange = reload;
  search.oninput = reload;
  let names = [];
  const update = ({ roles }) => {
    const now = roles.map((role) => role.name);
    if (now.join() !== names.join()) {
      const chosen = now.includes(choice.value) ? choice.value : now.includes("agent") ? "agent" : now[0];
      choice.replaceChildren(...now.map((name) => h("option", { value: name }, name)));
      choice.value = chosen;
      names = now;
    }
    if (text.checkVisibility() && !document.getSelection().containsNode(text, true)) reload();
  };
  return { element: h("div", { class: "card" }, h("div", { class: "row" }, choice, search), text), update };
}
