// Two models on one picture, at the same size: point at a place in one and see it in both, wall against wall, and where they differ.

import { element, framed } from "../core/dom.js";
import { cellAt, followPointer, pointIn, pointer } from "../core/pointer.js";
import { Request } from "../core/request.js";
import { display, state, update } from "../core/state.js";
import { limitsOf } from "../draw/colour.js";
import { drawMap, drawSheet } from "../draw/heat.js";
import { Ramp, signedEnds } from "../draw/parts.js";
import { METHODS, blockFor, headFor, headName, leastSpan, methodFor, tokenFor } from "./explain.js";
import { PictureView } from "./picture.js";
import { PredictionsView, predictionText } from "./predictions.js";

const SHARES = ["attention", "rollout", "gradient_rollout", "relevance"];

export class CompareView {
  constructor(root, app) {
    Object.assign(this, { app, request: new Request(app) });
    this.other = () => (app.session.models.length > 1 ? 1 - state.model : state.model);
    root.append(
      element(
        "p",
        { class: "sentence" },
        "Both models see the same picture at the same size: point at a place in one and the frame marks it in the other. Do they look at the same things?",
      ),
    );
    if (app.session.models.length < 2) {
      root.append(
        element("p", { class: "empty" }, "Only one model is here. Start with a second one: "),
        element("p", { class: "empty" }, element("code", {}, "vitral explore MODEL IMAGE --compare MODEL2")),
      );
      return;
    }
    this.title = element("h3", {});
    this.how = element("p", { class: "quiet small" });
    const there = element("div", {});
    const answers = element("div", {});
    this.picture = new PictureView(there, app, this.other, "The same picture in the other model");
    this.predictions = new PredictionsView(answers, app, this.other, { choose: false });
    this.verdict = element("p", { class: "verdict" });
    this.swap = element("button", { type: "button", class: "plain", onclick: () => app.chooseModel(this.other()) }, "Swap the two models");
    this.difference = element("canvas", { class: "scene", role: "img" });
    this.ramp = new Ramp(true);
    this.caption = element("p", { class: "quiet small" });
    this.walls = [0, 1].map((side) => ({ name: element("h4", {}), canvas: element("canvas", { class: "wall-sheet", role: "img", onclick: (event) => this.choose(event, side) }) }));
    this.wallsBox = element(
      "section",
      { class: "figure" },
      element("h3", {}, "Wall against wall"),
      element("p", { class: "sentence" }, "Every head of both, block by block in reading order. A click chooses one in both models."),
      ...this.walls.map(({ name, canvas }) => element("div", {}, name, canvas)),
    );
    this.body = element(
      "div",
      {},
      there,
      answers,
      this.how,
      this.swap,
      element("section", { class: "figure" }, element("h3", {}, "Where they differ"), element("div", { class: "stage" }, this.difference), this.ramp.root, this.caption),
      this.wallsBox,
    );
    root.append(this.title, this.verdict, this.body);
    this.draw = framed(() => this.drawBoth());
    followPointer(() => state.view === "compare" && this.draw());
    new ResizeObserver(() => this.draw()).observe(this.difference);
  }

  async refresh() {
    const { app } = this;
    if (state.view !== "compare" || !this.picture || !state.picture) return;
    const other = this.other();
    const picture = state.picture;
    const model = app.session.models[other];
    this.title.textContent = model.name;
    if (this.request.renew(`${other} ${picture}`)) {
      const here = await this.request.run(() => app.source.ask("trace", { model: other, picture }));
      if (this.request.error) {
        delete app.traces[other];
        this.verdict.textContent = `${model.name}: ${this.request.error.message}.`;
        this.body.hidden = true;
      }
      if (!here) return;
    }
    if (!this.request.answer || state.picture !== picture || this.other() !== other) return;
    app.traces[other] = this.request.answer;
    this.body.hidden = false;
    const method = methodFor(model);
    const mine = app.current();
    const same = headName(blockFor(model), headFor(model), model.heads) === headName(blockFor(mine.model), headFor(mine.model), mine.model.heads);
    const head = method !== "attention" || same ? "" : ` There is no ${headName(blockFor(mine.model), headFor(mine.model), mine.model.heads)} here: this is ${headName(blockFor(model), headFor(model), model.heads)}.`;
    this.how.textContent =
      method === methodFor(mine.model) ? `Both show ${METHODS[method][0]}.${head}` : `Left ${METHODS[methodFor(mine.model)][0]}, here ${METHODS[method][0]}: this model has no ${METHODS[methodFor(mine.model)][0].toLowerCase()}.`;
    const here = predictionText(app.traces[other], model);
    const there = predictionText(mine.trace, mine.model);
    this.verdict.textContent = `${mine.model.name}: ${there}. ${model.name}: ${here}.`;
    this.predictions.refresh();
    await this.picture.refresh();
    this.drawBoth();
  }

  drawBoth() {
    if (!this.picture || !this.app.traces[this.other()] || !this.app.current().trace) return;
    this.drawDifference();
    this.drawWalls();
  }

  /** The other model's map minus this one's, both brought to the finer grid and to one unit. */
  drawDifference() {
    const { app, difference: canvas } = this;
    const { model, trace } = app.current();
    const other = app.session.models[this.other()];
    const scenes = [app.picture.scene(), this.picture.scene()];
    const ready = scenes.every((scene) => scene.values);
    const same = scenes[0].method === scenes[1].method;
    const method = scenes[0].method;
    const unit = same && SHARES.includes(method) ? "times an even share" : same && method === "occlusion" ? "probability" : same && method === "similarity" ? "cosine" : "of each map's own largest value";
    if (!canvas.clientWidth) return;
    let values = null;
    let grid = trace.grid;
    if (ready) {
      grid = [0, 1].map((side) => Math.max(...scenes.map((scene) => scene.mapGrid[side])));
      const [mine, theirs] = scenes.map((scene) => inUnit(resample(scene.values, scene.mapGrid, grid), scene.values, unit));
      values = theirs.map((value, cell) => value - mine[cell]);
    }
    const limits = values ? limitsOf(values, true, { "times an even share": 0.5, probability: 0.02, cosine: 0.1 }[unit] ?? 0.2) : [0, 1];
    const opacity = Math.min(1, display.opacity + 0.15);
    drawMap(canvas, { image: trace.image, grid, values, signed: true, limits, opacity, lift: false, query: cellAt(pointer.at, grid) });
    canvas.setAttribute("aria-label", `Difference map: ${other.name} minus ${model.name}`);
    this.ramp.set(...signedEnds(values, limits));
    this.caption.textContent = `${other.name} minus ${model.name}, ${unit}: red where ${other.name} has more, blue where ${model.name} has.`;
  }

  drawWalls() {
    const { app } = this;
    const sides = [state.model, this.other()];
    this.wallsBox.hidden = sides.some((index) => !app.session.models[index].attention);
    if (this.wallsBox.hidden) return;
    sides.forEach((index, side) => {
      const model = app.session.models[index];
      const trace = app.traces[index];
      const { name, canvas } = this.walls[side];
      name.textContent = model.name;
      const patch = cellAt(pointer.at, trace.grid);
      const token = patch !== null && trace.has(trace.prefix + patch) ? trace.prefix + patch : tokenFor(model, trace);
      paintWall(canvas, trace, model, token);
      canvas.setAttribute("aria-label", `All ${model.depth} × ${model.heads} heads of ${model.name}`);
    });
  }

  choose(event, side) {
    const index = side ? this.other() : state.model;
    const model = this.app.session.models[index];
    const trace = this.app.traces[index];
    const { wide, tall, beside, width, height } = wallPlan(trace, model);
    const [across, down] = pointIn(event);
    const [x, y] = [across * width, down * height];
    const block = Math.min(model.depth - 1, Math.floor(y / tall) * beside + Math.min(beside - 1, Math.floor(x / wide)));
    const head = Math.min(model.heads - 1, Math.floor((x % wide) / (trace.grid[1] + 1)));
    update({ block, head, method: "attention" });
  }
}

/** Where the tiles of a wall lie on its sheet: blocks in reading order, about twelve heads to a row, a gap between blocks. */
function wallPlan(trace, model) {
  const [rows, columns] = trace.grid;
  const beside = Math.max(1, Math.min(model.depth, Math.floor(12 / model.heads)));
  const wide = model.heads * (columns + 1) + 3;
  const origin = (block, head) => [Math.floor(block / beside) * (rows + 3) + 1, (block % beside) * wide + head * (columns + 1) + 1];
  return { origin, wide, tall: rows + 3, beside, width: beside * wide - 2, height: Math.ceil(model.depth / beside) * (rows + 3) - 1 };
}

/** All heads on one sheet, each tile in its own scale, the chosen one framed. */
function paintWall(canvas, trace, model, token) {
  const [rows, columns] = trace.grid;
  const { origin, width, height } = wallPlan(trace, model);
  const sheet = new Float32Array(width * height).fill(NaN);
  for (let block = 0; block < model.depth; block++) {
    for (let head = 0; head < model.heads; head++) {
      const values = trace.patches(trace.row(block, head, token));
      const [low, high] = limitsOf(values, false, leastSpan("attention", trace.tokens));
      const [top, left] = origin(block, head);
      values.forEach((value, patch) => (sheet[(top + Math.floor(patch / columns)) * width + left + (patch % columns)] = (value - low) / (high - low)));
    }
  }
  drawSheet(canvas, sheet, [height, width], { limits: [0, 1], lift: display.lift });
  const head = headFor(model);
  const [top, left] = origin(blockFor(model), Math.max(head, 0));
  const context = canvas.getContext("2d");
  context.strokeStyle = "#0091a8";
  context.strokeRect(left - 0.5, top - 0.5, (head < 0 ? model.heads : 1) * (columns + 1), rows + 1);
}

/** Values of one grid on a finer one. */
function resample(values, [rows, columns], [high, wide]) {
  if (rows === high && columns === wide) return Float32Array.from(values);
  return Float32Array.from({ length: high * wide }, (_, cell) => values[Math.floor(((Math.floor(cell / wide) + 0.5) / high) * rows) * columns + Math.floor((((cell % wide) + 0.5) / wide) * columns)]);
}

function inUnit(values, all, unit) {
  if (unit === "times an even share") return values.map((value) => value * all.length);
  if (!unit.startsWith("of each")) return values;
  const top = Math.max(...all.map(Math.abs)) || 1;
  return values.map((value) => value / top);
}
