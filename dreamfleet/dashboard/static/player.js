// Plays a video that comes as one picture with its frames in a grid.

import { h } from "./dom.js";

const FPS = 12;

export class Player {
  // A dream has three rows: truth, prediction and difference, and sees the truth in the first half only.
  constructor({ frames, height, width, columns }, address, isDream) {
    Object.assign(this, { frames, height, width, columns, isDream, at: 0, isPlaying: true });
    const scale = Math.max(1, Math.round((isDream ? 120 : 240) / (isDream ? height / 3 : height)));
    this.canvas = h("canvas", { width, height, role: "img", "aria-label": isDream ? "truth, prediction and difference" : "episode",
      style: `width:${width * scale}px` });
    this.time = h("span", { class: "phase" });
    this.slider = h("input", { type: "range", min: 0, max: frames - 1, value: 0, "aria-label": "frame", oninput: () => this.seek(Number(this.slider.value)) });
    this.button = h("button", { class: "plain", "aria-label": "play or pause", onclick: () => this.play(!this.isPlaying) }, "❚❚");
    const labels = isDream && h("div", { class: "labels" }, ["truth", "dream", "error"].map((text) => h("span", {}, text)));
    this.element = h("div", {}, h("div", { class: "stage" }, labels, this.canvas), h("div", { class: "row" }, this.button, this.slider, this.time));
    this.image = new Image();
    this.image.onload = () => {
      this.element.dataset.ready = "true";
      this.play(!matchMedia("(prefers-reduced-motion: reduce)").matches);
      this.draw();
    };
    this.image.src = address;
  }

  play(isPlaying) {
    this.isPlaying = isPlaying;
    this.button.textContent = isPlaying ? "❚❚" : "▶";
    clearInterval(this.timer);
    if (isPlaying) this.timer = setInterval(() => this.step(), 1000 / FPS);
  }

  step() {
    if (!this.element.isConnected) return this.remove();
    this.at = (this.at + 1) % this.frames;
    this.draw();
  }

  seek(frame) {
    this.play(false);
    this.at = frame;
    this.draw();
  }

  draw() {
    const { at, columns, width, height } = this;
    this.canvas.getContext("2d").drawImage(this.image, (at % columns) * width, Math.floor(at / columns) * height, width, height, 0, 0, width, height);
    this.slider.value = at;
    this.canvas.dataset.frame = at;
    const isSeen = at < Math.max(1, Math.floor(this.frames / 2));
    this.time.textContent = `${at + 1} / ${this.frames}${this.isDream ? (isSeen ? " · observed" : " · imagined") : ""}`;
  }

  remove() {
    clearInterval(this.timer);
  }
}
