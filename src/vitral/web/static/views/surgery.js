// Surgery: switch parts off and see the prediction move.

import { announce, element, percent, rovingStep } from "../core/dom.js";
import { cellAt } from "../core/pointer.js";
import { Request } from "../core/request.js";
import { display, partsOf, state, update } from "../core/state.js";
import { limitsOf } from "../draw/colour.js";
import { drawMap } from "../draw/heat.js";
import { Ramp, signedEnds } from "../draw/parts.js";
import { className } from "./explain.js";

export class SurgeryView {
  constructor(root, app) {
    Object.assign(this, { app, key: "", request: new Request(app) });
    const live = app.source.computes;
    this.headGrid = element("div", { class: "head-grid", role: "group", "aria-label": "Heads and blocks that can be switched off" });
    this.headGrid.addEventListener("keydown", (event) => this.walk(event));
    this.summary = element("p", { class: "verdict", role: "status" });
    this.rows = element("ul", { class: "changes" });
    this.canvas = element("canvas", { class: "scene", role: "img" });
    this.canvas.setAttribute("aria-label", "Difference map");
    this.ramp = new Ramp(true, { kind: "small-scene" });
    this.caption = element("p", { class: "quiet small" });
    this.reset = element("button", { type: "button", class: "plain", onclick: () => this.allOn() }, "Switch everything on");
    root.append(
      element(
        "p",
        { class: "sentence" },
        live
          ? "Switch off heads (dots), whole blocks (left) or patches (click the picture): if the prediction moves, the model needed them."
          : "Switch off a head (dot) or a whole block (left): if the prediction moves, the model needed it.",
      ),
      element("p", { class: "notice", hidden: live }, "Computed when this page was made: each head and each block on its own. Combinations and patches need vitral explore."),
      element(
        "div",
        { class: "operation" },
        element("div", {}, this.headGrid, this.reset),
        element(
          "div",
          { class: "outcome" },
          this.summary,
          this.rows,
          element("div", { class: "stage small-scene" }, this.canvas),
          this.ramp.root,
          this.caption,
        ),
      ),
    );
  }

  async refresh() {
    const { app } = this;
    const { model, trace } = app.current();
    if (!trace || state.view !== "surgery") return;
    this.build(model);
    this.mark();
    this.reset.hidden = !state.off.size;
    const { model: index, picture, off } = state;
    const method = model.attention ? "rollout" : "gradcam";
    const target = model.attention ? null : state.target;
    if (this.request.renew([index, picture, partsOf(off), target].join(" ")) && off.size) {
      const ask = (parts) => app.source.ask("map", { model: index, picture, method, target, off: parts });
      await this.request.run(() => Promise.all([ask(new Set()), ask(off)]));
      if (this.request.pending) return;
    }
    const maps = this.request.answer;
    this.show(maps && off === state.off ? this.change(method, maps) : null, app.current().model, app.current().trace ?? trace);
  }

  /** What switching off changes: the classes that matter before and after, and the difference of the maps. */
  change(method, maps) {
    const { source, whole: before } = this.app;
    const after = this.app.current().trace;
    const chosen = state.target === null || !source.computes ? [] : [state.target];
    const classes = [...new Set([...before.order.slice(0, 5), ...after.order.slice(0, 5), ...chosen])];
    return {
      method,
      rows: classes.map((index) => [index, before.probabilities[index], after.probabilities[index]]),
      top: [before.order[0], after.order[0]],
      grid: maps[1].grid,
      difference: Float32Array.from(maps[1].values, (value, cell) => value - maps[0].values[cell]),
    };
  }

  build(model) {
    const key = `${model.name} ${model.depth} ${model.heads}`;
    if (key === this.key) return;
    this.key = key;
    this.headGrid.replaceChildren();
    if (!model.attention) {
      this.headGrid.append(element("p", { class: "empty" }, `A ${model.family} has no heads or blocks to switch off: click patches in the picture.`));
      return;
    }
    for (let block = 0; block < model.depth; block++) {
      const row = element("div", { class: model.heads > 8 ? "head-grid-row narrow" : "head-grid-row" });
      row.append(this.toggle(`b${block}`, `block ${block}`, `${block}`, "block-switch"));
      for (let head = 0; head < model.heads; head++) row.append(this.toggle(`h${block}.${head}`, `block ${block}, head ${head}`, "", "head-switch"));
      this.headGrid.append(row);
    }
    this.headGrid.querySelector("button").tabIndex = 0;
  }

  toggle(part, name, text, kind) {
    return element(
      "button",
      { type: "button", class: kind, role: "switch", tabIndex: -1, "data-part": part, "aria-label": name, title: name, onclick: () => this.flip(part) },
      text,
    );
  }

  /** The button goes, so the focus goes to the first switch. */
  allOn() {
    update({ off: new Set() });
    this.headGrid.querySelector("button")?.focus();
  }

  flip(part) {
    const off = this.app.source.computes ? new Set(state.off) : new Set(state.off.has(part) ? [part] : []);
    if (!off.delete(part)) off.add(part);
    update({ off });
  }

  mark() {
    for (const button of this.headGrid.querySelectorAll("button")) {
      const { part } = button.dataset;
      const block = part.slice(1).split(".")[0];
      button.setAttribute("aria-checked", String(!state.off.has(part)));
      button.classList.toggle("within", part[0] === "h" && state.off.has(`b${block}`));
    }
  }

  walk(event) {
    const buttons = [...this.headGrid.querySelectorAll("button")];
    const index = buttons.indexOf(document.activeElement);
    const { model } = this.app.current();
    const next = rovingStep(event.key, index, buttons.length, model.heads + 1);
    if (index < 0 || next < 0) return;
    event.preventDefault();
    buttons[index].tabIndex = -1;
    buttons[next].tabIndex = 0;
    buttons[next].focus();
  }

  show(result, model, trace) {
    const rows = result?.rows ?? trace.order.slice(0, 5).map((index) => [index, trace.probabilities[index], trace.probabilities[index]]);
    const shown = [...rows].sort((a, b) => Math.max(b[1], b[2]) - Math.max(a[1], a[2])).slice(0, 6);
    this.rows.replaceChildren(
      ...shown.map(([index, before, after]) => {
        const bars = [element("span", { class: "was" }), element("span", { class: "is" })];
        bars[0].style.inlineSize = `${before * 100}%`;
        bars[1].style.inlineSize = `${after * 100}%`;
        const moved = after - before;
        return element(
          "li",
          {},
          element("span", { class: "name" }, className(model, index)),
          element("span", { class: "number" }, `${percent(before)} → ${percent(after)}`),
          element("span", { class: `pair ${moved < 0 ? "down" : moved > 0 ? "up" : "same"}`, "aria-hidden": "true" }, ...bars),
        );
      }),
    );
    if (!result) {
      this.summary.textContent = state.off.size ? "" : "Everything is on.";
      this.caption.textContent = "";
    } else {
      const [first, second] = result.top;
      const row = result.rows.find(([index]) => index === first);
      const count = state.off.size === 1 ? "1 part" : `${state.off.size} parts`;
      this.summary.textContent =
        first === second
          ? `${count} off: still “${className(model, first)}”, ${percent(row[1])} → ${percent(row[2])}.`
          : `${count} off: “${className(model, first)}” becomes “${className(model, second)}”.`;
      const what = result.method === "rollout" ? "rollout" : "Grad-CAM";
      this.caption.textContent = `Difference map: ${what} after minus before. Red patches count for more than before, blue ones for less.`;
      announce(this.summary.textContent);
    }
    this.drawDifference(result, trace);
  }

  drawDifference(result, trace) {
    const values = result?.difference ?? null;
    const shape = result?.grid ?? trace.grid;
    const gone = new Set([...state.off].filter((part) => part[0] === "p").map((part) => Number(part.slice(1))));
    // A covered patch loses all it had: the colours are for the others.
    const others = values?.filter((_, cell) => !gone.has(cellAt([((cell % shape[1]) + 0.5) / shape[1], (Math.floor(cell / shape[1]) + 0.5) / shape[0]], trace.grid)));
    const limits = values ? limitsOf(others, true, 0.05 / values.length) : [0, 1];
    const opacity = Math.min(1, display.opacity + 0.15);
    drawMap(this.canvas, { image: trace.image, grid: trace.grid, mapGrid: shape, values, signed: true, limits, opacity, lift: false, lines: true, always: true, off: gone });
    this.ramp.set(...signedEnds(values, limits));
    this.ramp.colours.hidden = !values;
  }
}
