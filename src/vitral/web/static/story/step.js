// What the steps of the story share: words on one side, a picture on the other, and a clock that runs from 0 to 1 while it moves.

import { announce, element, percent, rovingStep } from "../core/dom.js";
import { cellAt, pointIn } from "../core/pointer.js";
import { limitsOf } from "../draw/colour.js";
import { drawMap } from "../draw/heat.js";
import { Ramp } from "../draw/parts.js";
import { className, tokenName } from "../views/explain.js";

export function figure(value, digits = 2) {
  const text = value.toFixed(digits).replace("-", "−");
  return Number(value.toFixed(digits)) === 0 ? (0).toFixed(digits) : text;
}

export function ease(clock) {
  return clock * clock * (3 - 2 * clock);
}

export class Step {
  seconds = 1.4;

  constructor(view, number) {
    Object.assign(this, { view, clock: 1, running: 0, played: false, taken: false });
    const id = `story-step-${number}`;
    this.title = element("h2", { id, tabIndex: -1 }, this.heading());
    this.reading = element("p", { class: "story-reading" });
    this.touch = element("div", { class: "touch" });
    this.notes = element("div", { class: "story-notes" });
    this.canvas = element("canvas", { class: "scene" });
    this.below = element("div", { class: "below" });
    this.side = element("div", { class: "beside" });
    const picture = element("div", { class: "story-figure" }, this.canvas, this.below);
    picture.style.setProperty("--ratio", this.trace.image.width / this.trace.image.height);
    this.root = element(
      "section",
      { class: "step card", "aria-labelledby": id },
      element("div", { class: "words" }, element("p", { class: "quiet small" }, `Step ${number} of 7`), this.title, element("p", { class: "lead" }, this.sentence()), this.touch, this.reading, this.side, this.notes),
      picture,
    );
    this.build();
  }

  get story() {
    return this.view.story;
  }

  get trace() {
    return this.view.trace;
  }

  get model() {
    return this.view.model;
  }

  /** How much larger than its place in the grid a patch is: overlapping ones reach over it. */
  get reach() {
    const { patch, stride, stem } = this.story;
    return stem ? [1, 1] : [patch[0] / stride[0], patch[1] / stride[1]];
  }

  build() {}

  /** Move, once; not where the reader has taken over, unless he asks for it. */
  play(asked = false) {
    if (!asked && (this.played || this.taken)) return;
    this.played = true;
    cancelAnimationFrame(this.running);
    const { still } = this.view;
    if (still.matches) return this.end();
    const began = performance.now();
    const frame = (now) => {
      this.clock = Math.min(1, (now - began) / (this.seconds * 1000));
      this.move(this.clock);
      this.draw();
      if (this.clock < 1 && !still.matches) this.running = requestAnimationFrame(frame);
      else this.end();
    };
    this.running = requestAnimationFrame(frame);
  }

  /** What the moving picture changes; by default only the clock. */
  move() {}

  end() {
    cancelAnimationFrame(this.running);
    this.clock = 1;
    this.move(1);
    this.draw();
  }

  /** Out of sight: it will move again. */
  rest() {
    this.played = false;
    cancelAnimationFrame(this.running);
    this.clock = 1;
  }

  /** The reader takes over: the picture stops moving by itself. */
  take() {
    this.taken = true;
    cancelAnimationFrame(this.running);
    this.clock = 1;
  }

  /** The picture answers to pointer, finger and arrow keys. */
  makeTouchable(label, here, choose) {
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "picture with patches");
    this.canvas.setAttribute("aria-label", label);
    this.canvas.addEventListener("click", (event) => {
      const patch = this.patchAt(event);
      if (patch !== null) choose(patch);
    });
    this.canvas.addEventListener("keydown", (event) => {
      const next = rovingStep(event.key, here(), this.story.patches, this.story.grid[1]);
      if (next < 0) return;
      event.preventDefault();
      choose(next);
      announce(this.reading.textContent);
    });
  }

  patchAt(event) {
    return cellAt(pointIn(event, this.canvas), this.story.grid);
  }

  makePicture(label) {
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", label);
  }

  /** A row of coloured numbers with a name. */
  numbers(name) {
    const canvas = element("canvas", { class: "numbers", role: "img" });
    canvas.setAttribute("aria-label", name);
    const label = element("span", { class: "small" }, name);
    return { canvas, label, row: element("div", { class: "number-row" }, label, canvas) };
  }

  /** Values over the picture; in grey where the colours of picture and map could be taken for each other. */
  map(values, { signed = false, limits = limitsOf(values, signed), query = this.view.patch, lift = false, lines = true, grey = false } = {}) {
    const image = grey ? greyed(this.trace.image) : this.trace.image;
    drawMap(this.canvas, { image, grid: this.story.grid, values, signed, limits, opacity: 0.72, smooth: false, lift, lines, query, always: true });
  }

  ramp(low, high, signed, lift = false) {
    return new Ramp(signed, { lift, low, high }).root;
  }

  note(...found) {
    this.notes.replaceChildren(...found.filter(Boolean).map(({ title, text }) => element("aside", { class: "notice" }, element("b", {}, `${title}. `), text)));
  }

  name(token) {
    return tokenName(this.model, token, true);
  }

  /** One output, no classes: a number. */
  get single() {
    return this.model.classes === 1 && !this.model.thresholds.length;
  }

  share(value) {
    return this.single ? figure(value, 3) : percent(value);
  }

  /** A class with its probability, as a sentence has it. */
  says([index, share]) {
    return this.single ? figure(share, 3) : `${className(this.model, index)} (${percent(share)})`;
  }
}

const greys = new WeakMap();

/** The picture without its colours. */
function greyed(image) {
  if (greys.has(image)) return greys.get(image);
  const canvas = element("canvas", { width: image.width, height: image.height });
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const pixels = context.getImageData(0, 0, image.width, image.height);
  for (let at = 0; at < pixels.data.length; at += 4) {
    const light = 0.3 * pixels.data[at] + 0.59 * pixels.data[at + 1] + 0.11 * pixels.data[at + 2];
    pixels.data.fill(light, at, at + 3);
  }
  context.putImageData(pixels, 0, 0);
  greys.set(image, canvas);
  return canvas;
}
