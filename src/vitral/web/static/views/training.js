// The training: what every snapshot of the run made of this picture, with a scrubber over the steps.

import { announce, element, percent } from "../core/dom.js";
import { Request } from "../core/request.js";
import { state } from "../core/state.js";
import { chartKey, lineChart, player } from "../draw/chart.js";
import { limitsOf } from "../draw/colour.js";
import { drawMap, drawPositions } from "../draw/heat.js";
import { blockFor, leastSpan } from "./explain.js";
import { drawFilters } from "./figures.js";

export class TrainingView {
  constructor(root, app) {
    Object.assign(this, { app, frame: 0 });
    this.request = new Request(app, { retry: false, progress: (work) => this.showProgress(work) });
    this.verdict = element("p", { class: "headline", role: "status" });
    this.slider = element("input", { type: "range", min: 0, step: 1, id: "step-slider", oninput: () => this.show(Number(this.slider.value)) });
    this.step = element("output", {});
    this.play = element("button", { type: "button", class: "plain", "aria-pressed": "false" }, "Play");
    player(this.play, this.slider);
    this.attention = element("canvas", { class: "scene", role: "img" });
    this.classes = element("canvas", { class: "scene", role: "img" });
    this.attentionTitle = element("h3", {});
    this.classesTitle = element("h3", {});
    this.classesBox = element("div", {}, this.classesTitle, this.classes);
    this.charts = element("div", { class: "halves" });
    this.filters = element("div", {});
    this.positions = element("canvas", { class: "sheet", role: "img", "aria-label": "Similarity of the positions" });
    this.positionsBox = element("div", {}, element("h3", {}, "Positions"), this.positions);
    this.note = element("p", { class: "quiet small" });
    this.progress = element("span", { class: "quiet small", role: "status" });
    this.stop = element("button", { type: "button", class: "plain", onclick: () => this.request.cancel() }, "Stop");
    this.again = element("button", { type: "button", class: "strong", hidden: true, onclick: () => this.load() }, "Watch the snapshots");
    this.waiting = element("div", { class: "row", hidden: true }, this.progress, this.stop);
    this.body = element(
      "div",
      { hidden: true },
      this.verdict,
      element("div", { class: "scrubber" }, this.play, element("label", { for: "step-slider" }, "Step ", this.step), this.slider),
      element("div", { class: "halves" }, element("div", {}, this.attentionTitle, this.attention), this.classesBox),
      this.charts,
      element("div", { class: "halves" }, element("div", {}, element("h3", {}, "First layer"), this.filters), this.positionsBox),
      this.note,
    );
    this.empty = element("p", { class: "empty", hidden: true });
    root.append(element("p", { class: "sentence" }, "How the model came to see this picture: the same measurements of every snapshot that the run kept. Drag through its training."), this.waiting, this.again, this.body, this.empty);
    new ResizeObserver(() => this.film && this.draw()).observe(this.attention);
  }

  refresh() {
    const { model, trace } = this.app.current();
    if (state.view !== "training" || !trace) return;
    const none = model.film?.length ? "" : "This model kept no snapshots of its training: vitral train RUN --snapshots 24 keeps some.";
    this.empty.hidden = !none;
    this.empty.textContent = none;
    if (this.request.renew(`${state.model} ${state.picture}`)) {
      this.body.hidden = true;
      if (!none) return this.load();
    }
    if (none) this.body.hidden = this.waiting.hidden = this.again.hidden = true;
    else if (this.film) this.draw();
  }

  get film() {
    return this.request.answer;
  }

  async load() {
    this.waiting.hidden = false;
    this.again.hidden = true;
    const question = { model: state.model, picture: state.picture };
    const here = await this.request.run((signal) => this.app.source.ask("film", { ...question, signal }));
    if (this.request.pending) return; // of another picture
    this.waiting.hidden = true;
    this.again.hidden = Boolean(this.film);
    if (!here) return;
    this.frame = this.film.header.steps.length - 1;
    this.body.hidden = false;
    this.draw();
  }

  showProgress({ done, total, seconds }) {
    this.progress.textContent = total ? `Watching snapshots … ${done} of ${total}, about ${Math.max(1, Math.round(seconds))}\u00a0s left` : "waiting …";
  }

  show(frame) {
    this.frame = frame;
    this.draw();
    announce(this.verdict.textContent);
  }

  /** What a clip is made of: so many frames, each drawn on the picture. */
  frames() {
    if (!this.film) return null;
    return { count: this.film.header.steps.length, canvas: this.attention, here: this.frame, show: (frame) => this.show(frame), text: () => this.verdict.textContent };
  }

  section(name, shape) {
    const size = shape.reduce((product, each) => product * each, 1);
    return this.film.sections[name]?.subarray(this.frame * size, (this.frame + 1) * size) ?? null;
  }

  draw() {
    const { model, trace } = this.app.current();
    const { header } = this.film;
    const { steps } = header;
    const step = steps[this.frame];
    const [rows, columns] = trace.grid;
    const count = rows * columns;
    this.slider.max = steps.length - 1;
    this.slider.value = this.frame;
    this.step.textContent = step.toLocaleString("en");
    this.slider.setAttribute("aria-valuetext", `step ${step}`);
    const block = blockFor(model);
    const maps = this.section("attention", [model.depth, count]);
    this.attentionTitle.textContent = `Attention in block ${block}`;
    this.overlay(this.attention, maps.subarray(block * count, (block + 1) * count), leastSpan("attention", count + 1), this.attentionTitle.textContent);
    const classes = this.section("classes", [count]);
    this.classesBox.hidden = !classes;
    if (classes) {
      this.classesTitle.textContent = `What speaks for “${header.class}”`;
      this.overlay(this.classes, classes, leastSpan("relevance", count), this.classesTitle.textContent);
    }
    const lens = this.section("lens", [model.depth + 1]);
    const end = lens ? `“${header.class}” ${percent(lens[model.depth])}` : "";
    this.verdict.textContent = `Step ${step.toLocaleString("en")}${end ? `: ${end}` : ""}`;
    this.drawCharts(model, header, lens);
    this.drawTiles();
    this.drawPositions(rows, columns);
    this.note.textContent = header.notes.join(" ");
  }

  overlay(canvas, values, least, name) {
    const { trace } = this.app.current();
    canvas.setAttribute("aria-label", `${name}, step ${this.film.header.steps[this.frame]}`);
    if (!canvas.clientWidth) return;
    drawMap(canvas, { image: trace.image, grid: trace.grid, values, limits: limitsOf(values, false, least) });
  }

  drawCharts(model, header, lens) {
    const { steps } = header;
    const boxes = [];
    const all = this.film.sections.lens;
    if (all) {
      const depth = model.depth + 1;
      const final = steps.map((_, frame) => all[frame * depth + depth - 1]);
      const rank = [...steps.keys()];
      const ticks = rank.filter((at) => at % Math.ceil(rank.length / 6) === 0).map((at) => [at, short(steps[at])]);
      boxes.push(chartBox("Confidence over the training", { xs: rank, lines: [{ name: `“${header.class}”`, values: final }], ticks, across: "step (snapshots at even distances)", label: `Confidence in ${header.class} over ${steps.length} snapshots`, cursor: this.frame, pick: (at) => this.show(at) }));
      const xs = [...lens.keys()];
      const places = xs.filter((at) => at % Math.ceil(depth / 13) === 0).map((at) => [at, at ? at - 1 : "start"]);
      boxes.push(chartBox("Prediction by depth at this step", { xs, lines: [{ name: `“${header.class}”`, values: [...lens] }], ticks: places, across: "block", label: `Confidence by depth at step ${steps[this.frame]}` }));
    }
    if (header.curve) {
      const [xs, values] = header.curve;
      const near = xs.reduce((best, value, index) => (Math.abs(value - steps[this.frame]) < Math.abs(xs[best] - steps[this.frame]) ? index : best), 0);
      const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => xs[0] + share * (xs.at(-1) - xs[0])).map((value) => [value, short(value)]);
      const whole = header.label.includes("%");
      const most = whole ? 100 : Math.max(...values, 1e-9);
      boxes.push(chartBox(whole ? "Validation accuracy, %" : "Loss", { xs, lines: [{ name: header.label, values }], ticks, most, up: (value) => Number(value.toPrecision(3)), across: "step", label: `${header.label} over the training`, cursor: near }));
    }
    const far = this.section("distance", [model.depth, model.heads]);
    const lines = Array.from({ length: Math.min(model.heads, 4) }, (_, head) => ({ name: `head ${head}`, values: Array.from({ length: model.depth }, (_, block) => far[block * model.heads + head]) }));
    const xs = [...Array(model.depth).keys()];
    const most = Math.max(...this.film.sections.distance, 1e-6);
    if (model.depth > 1) boxes.push(chartBox(`How far heads look, in pixels${model.heads > 4 ? " (the first four)" : ""}`, { xs, lines, ticks: xs.filter((at) => at % Math.ceil(model.depth / 12) === 0).map((at) => [at, at]), most, up: (value) => Number(value.toPrecision(2)), across: "block", label: "Mean attention distance in pixels by block" }));
    this.charts.replaceChildren(...boxes);
  }

  drawTiles() {
    const [, count, rows, columns] = this.film.header.sections.find((each) => each.name === "filters").shape;
    const bytes = this.section("filters", [count, rows, columns, 3]);
    this.filters.replaceChildren(drawFilters({ shape: [count, rows, columns], bytes, title: `First layer at step ${this.film.header.steps[this.frame]}` }));
  }

  drawPositions(rows, columns) {
    const count = rows * columns;
    const raw = this.section("positions", [count, count]);
    this.positionsBox.hidden = !raw;
    if (raw) drawPositions(this.positions, new Int8Array(raw.buffer, raw.byteOffset, raw.byteLength), [rows, columns]);
  }
}

function chartBox(title, options) {
  return element("div", {}, element("h3", {}, title), lineChart(options), options.lines.length > 1 ? chartKey(options.lines) : null);
}

function short(step) {
  return step >= 1e6 ? `${Number((step / 1e6).toPrecision(2))} M` : step >= 1e3 ? `${Number((step / 1e3).toPrecision(2))} k` : Math.round(step);
}
