// Prediction by depth: the head read after every block. What would the model say if it stopped here, and what does it call this patch?

import { announce, element, framed, percent } from "../core/dom.js";
import { placeOf } from "../core/places.js";
import { cellAt, followPointer, pointer, trackPointer } from "../core/pointer.js";
import { Request } from "../core/request.js";
import { partsOf, state, update } from "../core/state.js";
import { chartKey, lineChart, player } from "../draw/chart.js";
import { limitsOf } from "../draw/colour.js";
import { drawMap } from "../draw/heat.js";
import { bar } from "../draw/parts.js";
import { blockFor, className, targetFor } from "./explain.js";

export class DepthView {
  constructor(root, app) {
    Object.assign(this, { app, request: new Request(app), embedding: false });
    this.verdict = element("p", { class: "headline", role: "status" });
    this.slider = element("input", { type: "range", min: 0, step: 1, id: "depth-slider", oninput: () => this.scrub(Number(this.slider.value)) });
    this.place = element("output", {});
    this.play = element("button", { type: "button", class: "plain", "aria-pressed": "false" }, "Play");
    player(this.play, this.slider);
    this.story = element("p", { class: "reading" });
    this.chart = element("div", {});
    this.bars = element("ul", { class: "bars" });
    this.canvas = element("canvas", { class: "scene", role: "img" });
    this.reading = element("p", { class: "reading" });
    trackPointer(this.canvas);
    this.empty = element("p", { class: "empty", hidden: true });
    this.note = element("p", { class: "quiet small" });
    this.body = element(
      "div",
      {},
      this.verdict,
      element("div", { class: "scrubber" }, this.play, element("label", { for: "depth-slider" }, "After ", this.place), this.slider),
      this.story,
      element(
        "div",
        { class: "halves" },
        element("div", {}, this.chart, this.bars),
        element("div", {}, element("h3", {}, "Each patch, read on its own"), element("div", { class: "stage" }, this.canvas), this.reading),
      ),
      this.note,
    );
    root.append(element("p", { class: "sentence" }, "The model's last layer, read early: what would it answer if it stopped here? Drag through the depth."), this.body, this.empty);
    followPointer(framed(() => state.view === "depth" && this.drawPatches()));
  }

  get depth() {
    return this.embedding ? 0 : Math.min(blockFor(this.app.current().model) + 1, this.lens ? this.lens.header.top.length - 1 : 1);
  }

  async refresh() {
    const { app } = this;
    const { model, trace } = app.current();
    if (state.view !== "depth" || !trace) return;
    const none = !model.attention ? `A ${model.family} has no class token to read before its end.` : model.classes ? "" : "This model has no head: it gives features, not classes.";
    this.body.hidden = Boolean(none);
    this.empty.hidden = !none;
    this.empty.textContent = none;
    if (none) return;
    const off = app.partsOff();
    const target = state.target === null ? null : targetFor(trace);
    if (this.request.renew(`${state.model} ${state.picture} ${target} ${partsOf(off)}`)) {
      this.body.classList.add("waiting");
      await this.request.run((signal) => app.source.ask("depth", { model: state.model, picture: state.picture, target, off, signal }));
      if (!this.request.pending) this.body.classList.remove("waiting");
    }
    if (this.lens) this.draw();
  }

  get lens() {
    return this.request.answer;
  }

  /** 0: the embedding; else the block below it. The picture's own block goes along. */
  scrub(depth) {
    this.embedding = depth === 0;
    if (depth > 0 && blockFor(this.app.current().model) !== depth - 1) update({ block: depth - 1 });
    else this.draw();
  }

  draw() {
    const { model } = this.app.current();
    const { header } = this.lens;
    const { depth } = this;
    const count = header.top.length;
    this.slider.max = count - 1;
    this.slider.value = depth;
    this.place.textContent = placeName(depth);
    this.slider.setAttribute("aria-valuetext", `${placeName(depth)}: ${this.answer(depth)}`);
    this.verdict.textContent = `After ${placeName(depth)}: ${this.answer(depth)}`;
    this.story.textContent = this.path(model, header);
    const lines = header.lines.map(([index, values]) => ({ name: className(model, index), values }));
    const xs = [...header.top.keys()];
    const every = Math.ceil(count / 13);
    const ticks = xs.filter((at) => at % every === 0).map((at) => [at, at ? at - 1 : "start"]);
    const most = model.classes === 1 ? Math.max(...lines[0].values, 1e-6) : 1;
    const label = `Probability by depth: ${this.path(model, header)}`;
    this.chart.replaceChildren(lineChart({ xs, lines, ticks, most, across: "block", label, cursor: depth, pick: (at) => this.scrub(at) }), chartKey(lines));
    this.bars.replaceChildren(
      ...header.top[depth].map(([index, share]) => element("li", { class: "bar still" }, ...bar(className(model, index), this.number(share), Math.max(share, 0.005)))),
    );
    const cut = state.off.size && !this.app.source.computes ? " The whole model; it was not computed without the parts that are off." : "";
    this.note.textContent =
      `The plain lens: last norm and head applied to unfinished tokens. Early blocks were never trained to be read this way, so what they say is a hint, not an opinion.${cut}`;
    this.drawPatches();
    announce(this.verdict.textContent);
  }

  number(share) {
    return this.app.current().model.classes === 1 ? share.toFixed(3) : percent(share);
  }

  answer(depth) {
    const [index, share] = this.lens.header.top[depth][0];
    return `${className(this.app.current().model, index)}, ${this.number(share)}`;
  }

  /** "blocks 0 to 3: fence · from block 9: zebra". */
  path(model, { top }) {
    const runs = [];
    top.forEach(([[index]], depth) => {
      if (runs.at(-1)?.index === index) runs.at(-1).last = depth;
      else runs.push({ index, first: depth, last: depth });
    });
    return runs
      .map(({ index, first, last }, at) => {
        const name = className(model, index);
        if (at === runs.length - 1) return first === 0 ? `${name} from the start` : `from ${placeName(first)} on: ${name}`;
        if (first === last) return `${placeName(first)}: ${name}`;
        return first === 0 ? `up to ${placeName(last)}: ${name}` : `blocks ${first - 1} to ${last - 1}: ${name}`;
      })
      .join(" · ");
  }

  drawPatches() {
    const { model, trace } = this.app.current();
    if (!this.lens || !trace || !this.canvas.clientWidth) return;
    const { header, sections } = this.lens;
    const count = header.grid[0] * header.grid[1];
    const start = this.depth * count;
    const values = Float32Array.from(sections.target.subarray(start, start + count), (code) => code / 255);
    const hovered = cellAt(pointer.at, header.grid);
    drawMap(this.canvas, { image: trace.image, grid: header.grid, values, limits: limitsOf(values, false, 0.05), query: hovered });
    const name = className(model, header.target);
    this.canvas.setAttribute("aria-label", `How strongly each patch says ${name} after ${placeName(this.depth)}`);
    const at = start + (hovered ?? 0);
    this.reading.textContent =
      hovered === null
        ? `Bright: patches that say “${name}”, up to ${percent(Math.max(...values))}. Point at one to hear what it says.`
        : `The patch in ${placeOf(hovered, header.grid)} says ${className(model, sections.answers[at])}, ${percent(sections.confidence[at] / 255)} (“${name}” ${percent(values[hovered])})`;
  }
}

function placeName(depth) {
  return depth === 0 ? "the embedding" : `block ${depth - 1}`;
}
