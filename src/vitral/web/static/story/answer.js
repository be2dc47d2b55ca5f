// The last step of the story: through the depth to a class.

import { element, percent } from "../core/dom.js";
import { limitsOf } from "../draw/colour.js";
import { bar } from "../draw/parts.js";
import { reasonNote, sinkNote } from "./notes.js";
import { Step, figure } from "./step.js";
import { className, leastSpan } from "../views/explain.js";

export class Answers extends Step {
  short = "Class";
  seconds = 4.5;

  heading() {
    return `Block by block, to a ${this.single ? "number" : this.model.classes ? "class" : "vector"}`;
  }

  sentence() {
    const { reads, depth } = this.story;
    const through = `Through ${this.model.depth} block${this.model.depth > 1 ? "s" : ""}`;
    const [top] = depth[this.model.depth] ?? [];
    const end = (what) => (top ? `the head reads ${what} and says ${this.single ? figure(top[1], 3) : className(this.model, top[0])}` : `${what} is what the model gives out`);
    if (reads === "class") return `${through} the class token, which belongs to no patch, gathers what it needs by asking, and at the end ${end(top ? "it alone" : "its vector")}.`;
    const lacks = this.model.prefix.includes("class token") ? "" : ", since this model has no class token,";
    const what = { mean: "the mean of all of them", "class+mean": "the class token and the mean of the patches", attention: "what one last learned question finds in them", map: "what one last learned question finds in them" }[reads];
    return `${through} all patches go on asking each other, and at the end${lacks} ${end(what)}.`;
  }

  build() {
    this.block = this.model.depth - 1;
    this.slider = element("input", { type: "range", min: 0, max: this.model.depth - 1, step: 1, value: this.block, "aria-label": "Block", oninput: () => this.go() });
    this.label = element("output", { class: "small" });
    this.touch.append(element("p", {}, this.model.reads === 0 ? "Walk through the depth: where the class token looks, and what the head would say if it read it there." : `Walk through the depth: where the patches look on average${this.model.classes ? ", and what the head would say if it read there" : ""}.`), element("label", { class: "row" }, "Block", this.slider, this.label));
    this.list = element("ul", { class: "share-list" });
    this.side.append(this.list);
    this.scale = element("div");
    this.below.append(this.scale);
  }

  go() {
    this.take();
    this.block = Number(this.slider.value);
    this.draw();
  }

  move(clock) {
    this.block = Math.min(this.model.depth - 1, Math.floor(clock * this.model.depth));
    this.slider.value = this.block;
  }

  draw() {
    const { story, model, trace, block } = this;
    const row = trace.row(block, -1, model.reads);
    const patches = trace.patches(row);
    const limits = limitsOf(patches, false, leastSpan("attention", trace.tokens));
    this.map(patches, { limits, lift: true, query: null });
    this.makePicture(`Where the ${model.reads === 0 ? "class token looks" : "patches look on average"} in block ${block}, mean of the heads`);
    this.scale.replaceChildren(this.ramp(percent(limits[0]), percent(limits[1]), false, true));
    this.label.textContent = `${block} (of 0 to ${model.depth - 1})`;
    const answers = story.depth[block + 1] ?? [];
    this.list.replaceChildren(
      ...answers.map(([index, share]) => element("li", {}, ...bar(className(model, index), this.share(share), this.single ? 1 : share))),
    );
    const last = block === model.depth - 1;
    this.reading.textContent = !answers.length ? "This model has no head: it gives features, not classes." : last ? `The answer: ${this.says(answers[0])}.${this.settled()}` : `Read after block ${block}: ${this.says(answers[0])}.`;
    this.note(sinkNote(story, model, block), last && reasonNote(story, model));
  }

  /** From which block on the answer stays what it is at the end. */
  settled() {
    if (this.single) return "";
    const firsts = this.story.depth.map(([[index]]) => index);
    let from = firsts.length - 1;
    while (from > 0 && firsts[from - 1] === firsts[firsts.length - 1]) from--;
    if (from === 0) return " It was so from the start.";
    return from === firsts.length - 1 ? " Before the last block it was another." : ` It has been so since block ${from - 1}.`;
  }
}
