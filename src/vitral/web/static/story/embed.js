// The first three steps of the story: from a picture to vectors that know their place.

import { announce, element } from "../core/dom.js";
import { limitsOf } from "../draw/colour.js";
import { drawNumbers, drawPatch, drawPattern, drawTiles } from "../draw/tiles.js";
import { Step, ease, figure } from "./step.js";

export class Cut extends Step {
  short = "Cut";

  heading() {
    return "The picture is cut into patches";
  }

  sentence() {
    const { grid, patch, stride, patches, stem } = this.story;
    const kind = patch[0] !== stride[0] || patch[1] !== stride[1] ? "overlapping patches" : "patches";
    if (stem) return `A small convolutional network first turns the picture into a map of features, and the model cuts this map into ${grid.join(" × ")} = ${patches} patches.`;
    return `The model does not see the picture whole: it cuts it into ${grid.join(" × ")} = ${patches} ${kind} of ${patch.join(" × ")} pixels.`;
  }

  build() {
    this.touch.textContent = "Touch a patch: it will be yours through the whole story.";
    this.large = element("canvas", { class: "one-patch", role: "img" });
    this.side.append(this.large);
    this.makeTouchable("The picture in patches. Arrow keys choose yours.", () => this.view.patch, (patch) => {
      this.take();
      this.view.choosePatch(patch);
    });
  }

  draw() {
    const { story, trace, reach } = this;
    const gap = (0.22 + 0.1 * (reach[0] > 1)) * ease(this.clock);
    drawTiles(this.canvas, trace.image, story.grid, { gap, reach, chosen: this.view.patch });
    drawPatch(this.large, trace.image, story.grid, this.view.patch, reach);
    const place = this.name(story.prefix + this.view.patch);
    this.large.setAttribute("aria-label", `Your patch, enlarged: ${place}`);
    const [height, width] = story.patch;
    const colours = story.channels === 3 ? " × 3 colours" : story.channels === 1 ? "" : ` × ${story.channels} channels`;
    this.reading.textContent = `Your patch: ${place.replace("patch in ", "")}, counted from 0.${story.stem ? "" : ` ${height} × ${width} pixels${colours} = ${height * width * story.channels} numbers.`}`;
  }
}

export class Vectors extends Step {
  short = "Vectors";

  heading() {
    return "Each patch becomes a vector";
  }

  sentence() {
    return `A patch is compared with ${this.story.width} learned patterns, and how well each of them fits is one number: these ${this.story.width} numbers, a vector, stand for the patch from now on.`;
  }

  build() {
    const { numbers, patch, sections } = this.story;
    this.chosen = 0;
    const size = patch[0] * patch[1] * 3;
    const group = element("div", { class: "patterns", role: "radiogroup", "aria-label": "Patterns" });
    numbers.forEach((number, index) => {
      const input = element("input", { type: "radio", name: "story-pattern", value: index, checked: index === 0, "aria-label": `pattern ${number}`, onchange: () => this.choose(index) });
      const tile = sections.patterns ? element("canvas", { "aria-hidden": "true" }) : element("span", { class: "small" }, String(number));
      if (sections.patterns) drawPattern(tile, sections.patterns.subarray(index * size, (index + 1) * size), patch);
      group.append(element("label", {}, input, tile));
    });
    this.touch.append(element("p", {}, `Touch a pattern and see where in the picture it fits (${numbers.length} of the ${this.story.width}).`), group);
    this.strip = this.numbers("Your patch in numbers: red above zero, blue below, the chosen pattern framed");
    this.side.append(this.strip.row);
    this.below.append(this.ramp("its opposite", "fits", true));
  }

  choose(index) {
    this.chosen = index;
    this.take();
    this.play(true);
  }

  draw() {
    const { story } = this;
    const number = story.numbers[this.chosen];
    const values = story.fits(number);
    const limits = limitsOf(values, true);
    const shown = values.map((value, patch) => (patch <= this.clock * story.patches ? value : 0));
    this.map(shown, { signed: true, limits, grey: true });
    this.makePicture(`How well pattern ${number} fits each patch`);
    const vector = story.vector(this.view.patch);
    drawNumbers(this.strip.canvas, vector, limitsOf(vector, true)[1], number);
    this.reading.textContent = `Pattern ${number} in your patch: ${figure(vector[number])}. In all patches: from ${figure(Math.min(...values))} to ${figure(Math.max(...values))}.`;
  }
}

export class Places extends Step {
  short = "Places";
  seconds = 3;

  heading() {
    return this.story.positions === "none" ? "No patch is told its place" : "Every patch is told its place";
  }

  sentence() {
    const { positions, positions_norm: norm } = this.story;
    const lack = "A vector does not say where its patch lies";
    const added = `a second one that stands for its place is added to it${norm ? " (and the sum brought to one scale)" : ""}`;
    const turned = "questions and keys are turned by angles that stand for row and column";
    const bonus = "every comparison of two patches gets a bonus that depends on how they lie to each other";
    const ways = { learned: added, sincos: added, rotary: turned, relative: bonus, "learned+rotary": `${added}, and later ${turned}`, "learned+relative": `${added}, and later ${bonus}` };
    if (positions === "none") return `${lack}, and this model leaves it so: to it, a picture is a heap of patches.`;
    return `${lack}, so ${ways[positions]}.`;
  }

  build() {
    this.shuffled = false;
    this.button = element("button", { type: "button", class: "plain", "aria-pressed": "false", onclick: () => this.toggle() }, "Shuffle the patches");
    this.touch.append(this.button);
    if (this.story.place(0)) {
      this.rows = ["Your patch", "+ its place", "= what goes on"].map((name) => this.numbers(name));
      this.side.append(...this.rows.map((each) => each.row));
    }
    this.makePicture("The patches, in order or shuffled");
  }

  toggle() {
    this.shuffled = !this.shuffled;
    this.button.setAttribute("aria-pressed", String(this.shuffled));
    this.take();
    this.play(true);
    announce(this.reading.textContent);
  }

  /** How far the patches are from order: 0 or 1 at rest. */
  get away() {
    if (this.clock >= 1) return Number(this.shuffled);
    if (this.taken) return ease(this.shuffled ? this.clock : 1 - this.clock); // one way; by itself there and back
    return ease(Math.min(1, 2.5 * Math.min(this.clock, 1 - this.clock)));
  }

  draw() {
    const { story, trace, view } = this;
    const columns = story.grid[1];
    const { away } = this;
    const place = (patch) => {
      const to = story.shuffledTo(patch);
      const [row, column] = [Math.floor(patch / columns), patch % columns];
      return [row + away * (Math.floor(to / columns) - row), column + away * ((to % columns) - column)];
    };
    drawTiles(this.canvas, trace.image, story.grid, { place, gap: 0.06, chosen: view.patch });
    if (this.rows) {
      const at = this.shuffled ? story.shuffledTo(view.patch) : view.patch;
      const [vector, added] = [story.vector(view.patch), story.place(at)];
      const sum = vector.map((value, index) => value + added[index]);
      const reach = limitsOf([...vector, ...added, ...sum], true)[1];
      [vector, added, sum].forEach((values, index) => drawNumbers(this.rows[index].canvas, values, reach));
      this.rows[1].label.textContent = `+ its place (${this.name(story.prefix + at).replace("patch in ", "")})`;
    }
    this.reading.textContent = this.words();
  }

  words() {
    const { depth, shuffle, positions } = this.story;
    const [now] = depth[depth.length - 1] ?? [];
    const [mixed] = shuffle.answer;
    if (!now) return "";
    const same = this.single ? now[1] === mixed[1] : now[0] === mixed[0];
    const end = positions === "none" ? "for this model the order of patches does not exist." : same ? "the same patches in other places, and here still the same answer." : "the same patches in other places, another answer.";
    return `In order: ${this.says(now)}. Shuffled: ${this.says(mixed)}, ${end}`;
  }
}
