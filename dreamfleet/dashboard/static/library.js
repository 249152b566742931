// The library that draws charts. It takes half a second to start, in which a page can do nothing else: by then the first
// lines are sketched.

import { h } from "./dom.js";

const FILES = ["bokeh.min.js", "bokeh-api.min.js"]; // in this order
let loading = null;

export const isLibraryThere = () => globalThis.Bokeh?.Plotting !== undefined;

// Starts the library when it is first needed, after what is under way; whoever asks after a failure has it tried again.
export function loadLibrary() {
  loading ??= start().catch((error) => {
    loading = null;
    throw error;
  });
  return loading;
}

async function start() {
  await new Promise((resolve) => setTimeout(resolve));
  for (const file of FILES) await load(file);
}

function load(file) {
  return new Promise((resolve, reject) => document.head.append(h("script", { src: `/charts/${file}`, onload: resolve, onerror: reject })));
}
