// The picture with its patches: hover one and see what it attends to.

import { announce, element, framed, percent, rovingStep } from "../core/dom.js";
import { exactPlace, placeOf, plainPlace } from "../core/places.js";
import { cellAt, followPointer, movePointer, pointIn, pointer, trackPointer } from "../core/pointer.js";
import { Request, progressText } from "../core/request.js";
import { display, partsOf, state, update } from "../core/state.js";
import { limitsOf } from "../draw/colour.js";
import { drawMap } from "../draw/heat.js";
import { Ramp } from "../draw/parts.js";
import { METHODS, blockFor, className, headFor, headName, leastSpan, methodFor, scaleText, targetFor, tokenFor, tokenName } from "./explain.js";

export class PictureView {
  /** `which()` says which of the models is shown here. */
  constructor(root, app, which, label) {
    Object.assign(this, { app, which });
    this.request = new Request(app, { delay: 150, progress: (work) => this.showProgress(work) });
    this.canvas = element("canvas", { class: "scene", tabIndex: 0, role: "application", "aria-roledescription": "picture with patches" });
    this.canvas.setAttribute("aria-label", label);
    this.chips = element("div", { class: "chips", role: "group", "aria-label": "Tokens that belong to no patch" });
    this.reading = element("p", { class: "reading" });
    this.ramp = new Ramp(false);
    this.scale = element("p", { class: "quiet small scale" });
    this.parked = element("p", { class: "small", title: "At least half of all tokens give each of them 5 equal shares of attention or more (Darcet et al., 2024: Vision Transformers Need Registers)" });
    this.progress = element("span", { role: "status" });
    this.stop = element("button", { type: "button", onclick: () => this.cancel() }, "Stop");
    this.wait = element("div", { class: "wait", hidden: true }, this.progress, this.stop);
    root.append(
      element("div", { class: "stage" }, this.canvas, this.wait),
      this.ramp.root,
      this.parked,
      this.scale,
      this.reading,
      this.chips,
    );
    this.draw = framed(() => this.drawNow());
    trackPointer(this.canvas);
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    followPointer(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  get model() {
    return this.app.session.models[this.which()];
  }

  get trace() {
    return this.app.traces[this.which()] ?? null;
  }

  /** Fetch what the current choice needs, then draw. */
  async refresh() {
    const { trace, model } = this;
    if (!trace) return this.request.cancel();
    this.fillChips();
    const method = methodFor(model);
    if (method === "attention" || method === "similarity" || method === null) {
      this.request.renew("");
      this.wait.hidden = true;
      return this.drawNow();
    }
    const target = state.target === null ? null : targetFor(trace);
    const off = this.app.partsOff(this.which());
    const question = { model: this.which(), picture: state.picture, method, target, off };
    if (this.request.renew(`${this.which()} ${state.picture} ${method} ${target} ${partsOf(off)}`)) {
      this.drawNow(); // without the old map, which is of another picture, class or method
      await this.request.run((signal) => this.app.source.ask("map", { ...question, signal }), method === "occlusion");
      if (!this.request.pending) this.wait.hidden = true;
    }
    this.drawNow();
  }

  get map() {
    return this.request.answer;
  }

  /** How far the work is and how long it will take, until it is done. */
  showProgress(work) {
    this.progress.textContent = progressText("computing", work) || "computing …";
    this.stop.hidden = methodFor(this.model) !== "occlusion";
    this.wait.hidden = false;
  }

  /** Stop computing and go back to what needs none. */
  cancel() {
    this.request.cancel();
    update({ method: this.model.attention ? "attention" : "gradcam" });
  }

  /** The patch under the pointer, if any. */
  get hovered() {
    return this.trace ? cellAt(pointer.at, this.trace.grid) : null;
  }

  /** What is drawn now: values over a grid, and the token that asks. */
  scene() {
    const { trace, model } = this;
    const method = methodFor(model);
    const hovered = this.hovered;
    if (method === "attention") {
      let token = tokenFor(model, trace);
      if (hovered !== null && trace.has(trace.prefix + hovered)) token = trace.prefix + hovered;
      const row = trace.row(blockFor(model), headFor(model), token);
      return { method, token, row, values: trace.patches(row), mapGrid: trace.grid, signed: false, unit: "share of attention", hovered };
    }
    if (method === "similarity") {
      const found = this.app.features.compare(this.which(), state.picture, blockFor(model));
      return { method, token: null, values: found?.values ?? null, mapGrid: found?.grid, signed: false, unit: "cosine similarity", hovered, found };
    }
    if (!this.map) return { method, token: null, values: null, hovered };
    return { method, token: null, values: this.map.values, mapGrid: this.map.grid, signed: this.map.signed, unit: this.map.unit, hovered };
  }

  /** Attention sinks that show on the map: of its block, or of any. */
  sinks({ method, values, mapGrid, signed }, [low, high]) {
    const { trace, model } = this;
    if (display.plain || !values || signed || method === "similarity" || String(mapGrid) !== String(trace.grid)) return [];
    if (method === "attention") return trace.sinks(blockFor(model));
    const all = new Set(Array.from({ length: model.depth }, (_, block) => trace.sinks(block)).flat());
    return [...all].filter((patch) => values[patch] - low > (high - low) / 4);
  }

  drawNow() {
    const { trace, canvas } = this;
    if (!trace || !canvas.isConnected || !canvas.clientWidth) return;
    const began = performance.now();
    const scene = this.scene();
    const limits = scene.values ? limitsOf(scene.values, scene.signed, leastSpan(scene.method, scene.method === "attention" ? trace.tokens : scene.values.length)) : [0, 1];
    const sinks = this.sinks(scene, limits);
    const query = scene.token !== null && scene.token >= trace.prefix ? scene.token - trace.prefix : null;
    drawMap(canvas, {
      image: trace.image,
      grid: trace.grid,
      values: scene.values,
      mapGrid: scene.mapGrid,
      signed: scene.signed,
      limits,
      lift: display.lift && scene.method !== "similarity",
      query: display.plain ? null : scene.found ? scene.found.own : query ?? (scene.method !== "attention" ? scene.hovered : null),
      queryGrid: scene.found?.grid,
      sinks,
      match: display.plain ? null : scene.found?.best,
      off: this.which() === state.model ? [...state.off].filter((part) => part[0] === "p").map((part) => Number(part.slice(1))) : [],
    });
    const [what, whom, these] = sinks.length > 1 ? [`${sinks.length} attention sinks`, "them", "These patches store"] : ["an attention sink", "it", "This patch stores"];
    this.parked.textContent = sinks.length ? `Dashed: ${what}. Most tokens attend to ${whom}. ${these} global information.` : "";
    this.describe(scene, limits);
    if (pointer.at) performance.measure("vitral-hover", { start: began, end: performance.now() });
  }

  describe(scene, limits) {
    const { model, trace } = this;
    const number = (value) => (Math.abs(value) < 1e-9 ? "0" : ["attention", "rollout", "gradient_rollout"].includes(scene.method) ? percent(value) : value.toPrecision(2));
    this.shown = { scene, limits }; // what a saved drawing is made of
    this.ramp.colour(scene.signed, display.lift && scene.method !== "similarity");
    this.ramp.set(...(scene.values ? limits.map(number) : ["", ""]));
    let text = "";
    if (scene.method === "attention") {
      const { token, share, patch, patchShare } = trace.most(blockFor(model), headFor(model), scene.token);
      const place = (index) => tokenName(model, index).replace("patch in ", "");
      const most = token < trace.prefix ? `the ${place(token)} (${percent(share)}), of the patches at ${place(patch)} (${percent(patchShare)})` : `${place(patch)} (${percent(patchShare)})`;
      text = `${sentenceCase(tokenName(model, scene.token))} · ${headName(blockFor(model), headFor(model), model.heads)} · ${share > 0 ? `looks most at ${most}` : "switched off"}`;
      [...this.chips.children].forEach((chip) => {
        const token = Number(chip.dataset.token);
        if (token >= 0) chip.lastChild.textContent = ` gets ${percent(scene.row[token])}`;
      });
    } else if (scene.found) {
      const { values, grid, best, own, block } = scene.found;
      const name = model.attention ? `after block ${block}` : "in the last layer";
      const start = own >= 0 ? `the patch in ${placeOf(own, grid)}` : "the place you point at";
      text = `Similarity ${name} · most like ${start}: ${placeOf(best, grid)} (${values[best].toFixed(2)})`;
    } else if (scene.values) {
      const target = this.map.target === null ? "" : ` · ${className(model, this.map.target)}`;
      text = `${METHODS[scene.method][0]}${target}`;
      if (scene.hovered !== null && scene.mapGrid[0] === trace.grid[0]) text += ` · here ${number(scene.values[scene.hovered])}`;
      if (this.map.note) text += ` · ${this.map.note}`;
    }
    this.reading.textContent = text;
    this.scale.textContent = scene.values ? scaleText(scene.method) : "";
  }

  fillChips() {
    const { model, trace } = this;
    const tokens = model.attention ? [...model.prefix.keys(), -1] : [];
    const chosen = trace ? tokenFor(model, trace) : null;
    this.chips.replaceChildren(
      ...tokens.map((token) => {
        const chip = element(
          "button",
          { class: "chip", type: "button", "aria-pressed": String(token === chosen), "data-token": token, onclick: () => update({ token, method: "attention" }) },
          element("b", {}, tokenName(model, token)),
          element("span", { class: "quiet" }),
        );
        return chip;
      }),
    );
  }

  click(event) {
    const patch = this.trace ? cellAt(pointIn(event), this.trace.grid) : null;
    if (patch !== null) this.choose(patch);
  }

  choose(patch) {
    if (state.view === "surgery" && this.app.source.computes) {
      const off = new Set(state.off);
      if (!off.delete(`p${patch}`)) off.add(`p${patch}`);
      update({ off });
      return;
    }
    const token = this.trace.prefix + patch;
    if (!this.model.attention || !this.trace.has(token)) return;
    update({ token: state.token === token ? null : token, method: asked() });
  }

  /** Arrow keys walk the patches, Enter does what a click does; Escape returns to the token that the head reads. */
  key(event) {
    const { trace, model } = this;
    if (!trace) return;
    const asks = model.attention && trace.header.whole;
    if (event.key === "Escape") {
      movePointer(null);
      return update({ token: null });
    }
    const [rows, columns] = trace.grid;
    const token = asks ? tokenFor(model, trace) : -1;
    const here = this.hovered ?? (token >= trace.prefix ? token - trace.prefix : Math.floor(rows / 2) * columns + Math.floor(columns / 2));
    const operates = state.view === "surgery" && this.app.source.computes;
    const enters = event.key === "Enter" || event.key === " ";
    const next = enters ? here : rovingStep(event.key, here, rows * columns, columns);
    if (next < 0 || (enters && !operates)) return;
    event.preventDefault();
    const place = exactPlace(next, trace.grid);
    if (enters) {
      this.choose(next);
      announce(`patch in ${place} ${state.off.has(`p${next}`) ? "off" : "on"}`);
      return;
    }
    if (asks && !operates) {
      movePointer(null);
      update({ token: trace.prefix + next, method: asked() });
    } else movePointer([((next % columns) + 0.5) / columns, (Math.floor(next / columns) + 0.5) / rows]);
    this.drawNow();
    announce(`${place}, ${plainPlace(next, trace.grid)}. ${this.reading.textContent}`);
  }
}

/** A patch can be asked what it attends to, or what resembles it. */
function asked() {
  return state.method === "similarity" ? "similarity" : "attention";
}

function sentenceCase(text) {
  return text[0].toUpperCase() + text.slice(1);
}
