// The wall: every head of every block as a thumbnail.

import { announce, element, framed, percent, rovingStep } from "../core/dom.js";
import { words } from "../core/places.js";
import { cellAt, followPointer, pointer } from "../core/pointer.js";
import { display, partsOf, state, update } from "../core/state.js";
import { limitsOf } from "../draw/colour.js";
import { tile } from "../draw/heat.js";
import { segments } from "../draw/parts.js";
import { enlarge, enlarged, refreshEnlarged } from "./enlarge.js";
import { blockFor, headFor, leastSpan, methodFor, scaleText, tokenFor, tokenName } from "./explain.js";

const UNITS = { distance: "px", entropy: "bits" };

export class WallView {
  constructor(root, app) {
    Object.assign(this, { app, key: "", painted: "", heads: [] });
    this.sorts = element("div", { class: "segments", role: "radiogroup", "aria-label": "Sort the wall by" });
    this.sorts.append(...segments("sort", ["depth", "distance", "entropy"].map((sort) => [sort, sort]), (sort) => update({ sort })));
    this.reading = element("p", { class: "reading", "aria-hidden": "true" });
    this.wall = element("div", { class: "wall", role: "group", "aria-label": "Attention of every block and head" });
    this.note = element("p", { class: "quiet small" });
    root.append(
      element("p", { class: "sentence" }, "Each tile is one head: bright cells are where it lets the chosen token display. Point at the picture and all heads follow. Arrow keys walk, a click enlarges."),
      element("div", { class: "row between" }, this.sorts, this.reading),
      this.wall,
      this.note,
    );
    this.wall.addEventListener("keydown", (event) => this.walk(event));
    new ResizeObserver(() => this.layOut()).observe(this.wall);
    followPointer(framed(() => state.view === "wall" && this.refresh()));
  }

  /** The token whose attention the tiles show: the patch under the pointer, else the chosen one. */
  asking(model, trace) {
    const patch = methodFor(model) === "attention" ? cellAt(pointer.at, trace.grid) : null;
    return patch !== null && trace.has(trace.prefix + patch) ? trace.prefix + patch : tokenFor(model, trace);
  }

  refresh() {
    const { app } = this;
    const trace = app.traces[state.model];
    const model = app.session.models[state.model];
    this.sorts.querySelectorAll("input").forEach((input) => (input.checked = input.value === state.sort));
    if (!trace) return;
    if (!model.attention) {
      this.key = this.painted = "";
      this.sorts.hidden = true;
      this.reading.textContent = "";
      this.wall.replaceChildren(element("p", { class: "empty" }, `A ${model.family} has no attention heads. Its Grad-CAM and occlusion maps are at hand on the left.`));
      this.note.textContent = "";
      return;
    }
    this.sorts.hidden = false;
    const token = this.asking(model, trace);
    const key = [state.model, state.picture, state.sort, partsOf(state.off)].join(" ");
    const painted = [key, token, display.lift, words.exact].join(" ");
    if (key !== this.key) this.build(trace, model);
    if (painted !== this.painted) this.paint(trace, model, token);
    Object.assign(this, { key, painted });
    this.mark();
    refreshEnlarged(app);
  }

  build(trace, model) {
    const { measures } = trace.header;
    const heads = [];
    for (let block = 0; block < model.depth; block++) {
      for (let head = 0; head < model.heads; head++) {
        heads.push({ block, head, distance: measures.distance[block][head], entropy: measures.entropy[block][head] });
      }
    }
    if (state.sort !== "depth") heads.sort((a, b) => a[state.sort] - b[state.sort]);
    this.heads = heads;
    // The tiles are made once a model; afterwards only their pixels change.
    if (this.wall.childElementCount !== heads.length || !this.wall.querySelector("canvas")) {
      this.wall.replaceChildren(...heads.map(() => element("button", { type: "button", class: "thumb", tabIndex: -1 }, element("canvas", { "aria-hidden": "true" }), element("span"))));
    }
    const ratio = trace.image.width / trace.image.height;
    const dense = heads.length > 72;
    heads.forEach(({ block, head, distance, entropy }, index) => {
      const button = this.wall.children[index];
      const [canvas, caption] = button.children;
      canvas.style.aspectRatio = ratio;
      button.setAttribute("aria-label", `block ${block}, head ${head}, distance ${distance.toFixed(0)} pixels, entropy ${entropy.toFixed(1)} bits (${block}.${head})`);
      const value = state.sort === "depth" ? `${block}.${head}` : `${heads[index][state.sort].toFixed(state.sort === "distance" ? 0 : 1)}`;
      caption.textContent = dense ? "" : value;
      button.onclick = () => this.choose(index, true);
      button.onpointerenter = () => this.read(index);
      button.onfocus = () => this.read(index);
    });
    this.wall.classList.toggle("dense", dense);
    this.layOut();
  }

  /** The tiles' pixels, for one token. */
  paint(trace, model, token) {
    const began = performance.now();
    const { heads } = this;
    heads.forEach(({ block, head }, index) => {
      const values = trace.patches(trace.row(block, head, token));
      tile(values, trace.grid, { canvas: this.wall.children[index].firstChild, lift: display.lift, limits: limitsOf(values, false, leastSpan("attention", trace.tokens)) });
    });
    const { worst } = trace.header.error;
    const cut = state.off.size ? `${this.app.source.computes ? "The model without" : "The whole model; its attention was not computed without"} ${partsOf(state.off)}. ` : "";
    this.note.textContent =
      cut +
      `${heads.length} heads, ${trace.tokens} × ${trace.tokens} weights each, for the ${tokenName(model, token)}. ${scaleText("attention")} ` +
      `Weights are stored in ${trace.header.levels + 1} steps. They differ from the model's by at most ${percent(worst)} of a row's largest weight.` +
      (trace.header.whole ? "" : " This model has too many tokens to send every row, so patches have no attention of their own here.");
    performance.measure("vitral-wall", { start: began, end: performance.now() });
  }

  /** As many columns as make the tiles largest; by depth, whole blocks to a row. */
  layOut() {
    const count = this.heads.length;
    const model = this.app.session.models[state.model];
    const width = this.wall.clientWidth;
    if (!count || !width || !model.heads) return; // of another model, as long as this one's tiles are not made
    const caption = this.wall.classList.contains("dense") ? 3 : 22;
    const height = Math.max(320, window.innerHeight - this.wall.getBoundingClientRect().top - window.scrollY - 76);
    const unit = state.sort === "depth" ? model.heads : 1;
    let best = unit;
    let size = 0;
    for (let columns = unit; columns <= Math.max(unit, Math.min(24, count)); columns += unit) {
      const side = Math.min(width / columns, height / Math.ceil(count / columns) - caption, 132);
      if (side > size + 0.5) [best, size] = [columns, side];
    }
    if (size < 34) {
      // Little room: let the page grow downwards; whole blocks to a row as long as a finger can meet a tile.
      best = unit * Math.floor(width / (unit * 26)) || Math.max(1, Math.floor(width / 40));
      best = state.sort === "depth" ? Math.min(best, Math.max(unit, 12)) : Math.min(best, 12);
      size = Math.min(width / best, 60);
    }
    this.columns = best;
    this.wall.style.gridTemplateColumns = `repeat(${best}, minmax(0, ${Math.floor(size)}px))`;
  }

  index() {
    const model = this.app.session.models[state.model];
    const block = blockFor(model);
    const head = headFor(model);
    return this.heads.findIndex((entry) => entry.block === block && entry.head === head);
  }

  mark() {
    const chosen = this.index();
    [...this.wall.children].forEach((button, index) => {
      button.setAttribute("aria-pressed", String(index === chosen));
      button.tabIndex = index === Math.max(chosen, 0) ? 0 : -1;
    });
    if (chosen >= 0) this.read(chosen);
    else this.reading.textContent = "";
  }

  read(index) {
    const { block, head, distance, entropy } = this.heads[index];
    this.reading.textContent = `block ${block} · head ${head} · ${distance.toFixed(0)} ${UNITS.distance} · ${entropy.toFixed(1)} ${UNITS.entropy}`;
  }

  choose(index, open) {
    const { block, head } = this.heads[index];
    update({ block, head, method: "attention" });
    if (open) enlarge(this.app, (key) => this.step(key));
  }

  step(key) {
    const next = rovingStep(key, Math.max(this.index(), 0), this.heads.length, this.columns);
    if (next >= 0) this.choose(next, false);
    return next;
  }

  walk(event) {
    if (enlarged()) return;
    const next = this.step(event.key);
    if (next < 0) return;
    event.preventDefault();
    this.wall.children[next].focus();
    announce(this.wall.children[next].getAttribute("aria-label"));
  }
}
