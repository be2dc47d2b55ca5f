// What resembles what, across pictures and models: point at a dog's ear, see the other dog's ear.

import { element, framed } from "../core/dom.js";
import { placeOf } from "../core/places.js";
import { followPointer, pointIn } from "../core/pointer.js";
import { display, state, update } from "../core/state.js";
import { limitsOf } from "../draw/colour.js";
import { drawMap } from "../draw/heat.js";
import { blockFor, leastSpan } from "./explain.js";
import { pointBeside } from "./features.js";

export class SimilarView {
  constructor(root, app) {
    Object.assign(this, { app, key: "", tiles: [] });
    this.reading = element("p", { class: "reading", role: "status" });
    this.shelf = element("div", {});
    root.append(
      element("p", { class: "sentence" }, "Point at a place in any of the pictures: bright patches hold something alike, the white frame marks the nearest. Each model compares in its own way."),
      this.reading,
      this.shelf,
      element("p", { class: "quiet small" }, "Cosine similarity of the patches' tokens after the chosen block; every map is scaled to its own range, at least 0.2 wide."),
    );
    this.draw = framed(() => this.drawNow());
    followPointer(() => state.view === "similar" && this.draw());
  }

  refresh() {
    const { app } = this;
    if (state.view !== "similar" || !state.picture) return;
    const key = [state.model, state.picture, ...app.pictures.map((entry) => entry.picture)].join(" ");
    if (key !== this.key) {
      this.key = key;
      this.build();
    }
    this.drawNow();
  }

  /** The other pictures in this model; in the other model, all of them. */
  build() {
    const { app } = this;
    const others = app.pictures.filter((entry) => entry.picture !== state.picture);
    const chosen = app.pictures.filter((entry) => entry.picture === state.picture);
    const models = [state.model, ...app.session.models.keys()].filter((index, at, list) => list.indexOf(index) === at);
    this.tiles = [];
    this.shelf.replaceChildren();
    for (const model of models) {
      const entries = model === state.model ? others : [...chosen, ...others];
      if (models.length > 1) this.shelf.append(element("h3", {}, app.session.models[model].name));
      this.shelf.append(element("div", { class: "similar" }, ...entries.map((entry) => this.tile(model, entry))));
    }
    if (!others.length) this.shelf.prepend(element("p", { class: "empty" }, app.source.computes ? "Open a second picture to compare across pictures; within this one, point at it." : "This page holds one picture: point at it."));
  }

  tile(model, { picture, name }) {
    const canvas = element("canvas", { class: "scene", role: "img" });
    const caption = element("figcaption", { class: "small" });
    canvas.addEventListener("pointermove", (event) => pointBeside(picture, pointIn(event)));
    canvas.addEventListener("pointerleave", () => pointBeside(null, null));
    canvas.addEventListener("click", () => update({ picture, target: null, token: null }));
    new ResizeObserver(() => this.draw()).observe(canvas);
    this.tiles.push({ model, picture, name, canvas, caption });
    return element("figure", {}, canvas, caption);
  }

  drawNow() {
    const { app } = this;
    const began = performance.now();
    let best = null;
    for (const { model, picture, name, canvas, caption } of this.tiles) {
      const shown = app.session.models[model];
      const found = app.features.compare(model, picture, blockFor(shown));
      canvas.setAttribute("aria-label", `${name} in ${shown.name}: similarity with the place that is pointed at`);
      if (!found) {
        caption.textContent = `${name} …`;
        continue;
      }
      if (!canvas.clientWidth) continue;
      drawMap(canvas, {
        image: found.image,
        grid: found.grid,
        values: found.values,
        limits: limitsOf(found.values, false, leastSpan("similarity", 1)),
        lift: false,
        lines: false,
        query: display.plain ? null : found.own,
        match: display.plain ? null : found.best,
      });
      const share = found.values[found.best];
      const text = `${name}: ${placeOf(found.best, found.grid)}, ${share.toFixed(2)}`;
      caption.textContent = text;
      if (model === state.model && (!best || share > best.share)) best = { text, share, block: found.block };
    }
    this.reading.textContent = best ? `Most alike in another picture, after block ${best.block}: ${best.text}` : "";
    performance.measure("vitral-similar", { start: began, end: performance.now() });
  }
}
