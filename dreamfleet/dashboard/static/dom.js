// Elements from code: h("button", {class: "icon", onclick}, "text", child).

const SVG = new Set(["svg", "g", "rect", "circle", "line", "path", "text", "title", "polyline"]);

export function h(tag, props = {}, ...children) {
  const node = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked" || key === "hidden" || key === "open") node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const texts = new WeakMap(); // of nodes, as they were last filled

// Replaces the children of a node only if they would look different: what has the focus keeps it.
export function replace(node, ...children) {
  const next = document.createElement("div");
  next.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  const text = next.innerHTML;
  if (text === texts.get(node)) return;
  texts.set(node, text);
  node.replaceChildren(...next.childNodes);
}

export function download(name, url) {
  h("a", { href: url, download: name }).click();
}
