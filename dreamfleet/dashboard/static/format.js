// Numbers and times as people read them.

export function short(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  for (const [limit, unit] of [[1e9, "B"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= limit) return `${trim((value / (unit === "k" ? 1e3 : limit)).toPrecision(digits))}${unit}`;
  }
  if (size !== 0 && size < 1e-3) return value.toExponential(digits - 2).replace("e-", "e−");
  return trim(value.toPrecision(Math.max(digits, size >= 1000 ? 4 : digits)));
}

function trim(text) {
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

// Labels of an axis, all of them in the same unit.
export function ticks(values) {
  const [limit, unit] = [[1e9, "B"], [1e6, "M"], [1e3, "k"]].find(([limit]) => Math.max(...values.map(Math.abs)) >= 10 * limit) ?? [1, ""];
  return values.map((value) => (value === 0 || unit === "" ? short(value, 4) : `${trim((value / limit).toPrecision(4))}${unit}`));
}

export function whole(value) {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-US");
}

export function percent(share) {
  return `${Math.round(100 * share)} %`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  const [d, hr, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (d) return `${d} d ${hr} h`;
  if (hr) return `${hr} h ${m} min`;
  return m ? `${m} min ${s % 60} s` : `${s} s`;
}

// What a run is measured by: the limit that it is nearest to, of steps or of updates.
export function goal(p) {
  const steps = { unit: "steps", done: p.step, total: p.total_steps };
  const updates = { unit: "updates", done: p.updates, total: p.total_updates ?? 0 };
  for (const each of [steps, updates]) each.share = each.total > 0 ? Math.min(1, each.done / each.total) : null;
  if (steps.share === null && updates.share === null) return p.updates > 0 && !p.step ? updates : steps;
  return (steps.share ?? -1) >= (updates.share ?? -1) ? steps : updates;
}

export function ago(time) {
  return time > 0 ? `${duration(Date.now() / 1000 - time)} ago` : "never";
}

export function bytes(mb) {
  return mb >= 1024 ? `${short(mb / 1024, 2)} GB` : `${Math.round(mb)} MB`;
}

// Tells names that are searched for: by a regular expression if the text is one, else by a part of the name.
export function matcher(text) {
  try {
    const pattern = new RegExp(text, "i");
    return (name) => pattern.test(name);
  } catch {
    return (name) => name.toLowerCase().includes(text.toLowerCase());
  }
}
