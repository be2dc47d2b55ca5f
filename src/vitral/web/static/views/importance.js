// Importance: every head switched off once, as one grid; then the least important removed first, with what is left of the answer.

import { announce, element, percent } from "../core/dom.js";
import { Request, progressText } from "../core/request.js";
import { state, update } from "../core/state.js";
import { chartKey, lineChart } from "../draw/chart.js";
import { colourOf } from "../draw/colour.js";
import { Ramp } from "../draw/parts.js";
import { className, targetFor } from "./explain.js";

export class ImportanceView {
  constructor(root, app) {
    Object.assign(this, { app, removed: 0 });
    this.request = new Request(app, { retry: false, progress: (work) => (this.progress.textContent = progressText(work.what, work) || "waiting …") });
    this.start = element("button", { type: "button", class: "strong", onclick: () => this.measure() }, "Measure every head");
    this.stop = element("button", { type: "button", class: "plain", hidden: true, onclick: () => this.request.cancel() }, "Stop");
    this.progress = element("span", { class: "quiet small", role: "status" });
    this.grid = element("div", { class: "importance", role: "group", "aria-label": "Importance of every head; a click switches it off" });
    this.ramp = new Ramp(true);
    this.reading = element("p", { class: "reading" });
    this.chart = element("div", {});
    this.slider = element("input", { type: "range", min: 0, step: 1, id: "removed", oninput: () => this.preview(Number(this.slider.value)), onchange: () => this.remove(Number(this.slider.value)) });
    this.count = element("output", {});
    this.fall = element("p", { class: "reading", role: "status" });
    this.result = element(
      "div",
      { class: "halves", hidden: true },
      element("div", {}, this.grid, this.ramp.root, this.reading),
      element(
        "div",
        {},
        element("h3", {}, "Remove the least important first"),
        this.chart,
        element("div", { class: "scrubber" }, element("label", { for: "removed" }, "Heads off: ", this.count), this.slider),
        this.fall,
      ),
    );
    this.panel = element(
      "section",
      { class: "figure", "aria-labelledby": "importance-title" },
      element("h3", { id: "importance-title" }, "Importance of every head"),
      element("p", { class: "sentence" }, "Each head switched off once, on this picture: blue heads were needed, red ones stood in the way, white ones made no difference."),
      element("div", { class: "row" }, this.start, this.stop, this.progress),
      this.result,
    );
    root.append(this.panel);
  }

  target(trace) {
    return state.target === null || !this.app.source.computes ? null : targetFor(trace);
  }

  refresh() {
    const { model, trace } = this.app.current();
    if (state.view !== "surgery" || !trace) return;
    this.panel.hidden = !model.attention || !model.classes;
    const other = this.request.renew(`${state.model} ${state.picture} ${this.target(trace)}`);
    if (other && !this.app.source.computes && !this.panel.hidden) this.measure();
    else this.show();
  }

  get found() {
    return this.request.answer;
  }

  show() {
    this.result.hidden = !this.found;
    this.start.hidden = Boolean(this.found) || this.request.pending || !this.app.source.computes;
    this.stop.hidden = !this.request.pending;
    if (this.found) this.mark();
  }

  /** The grid comes in the background: all else goes on meanwhile, and a line says how far it is. */
  async measure() {
    const { app } = this;
    const { model, trace } = app.current();
    const question = { model: state.model, picture: state.picture, target: this.target(trace) };
    const measured = this.request.run((signal) => app.source.ask("importance", { ...question, signal }));
    this.show();
    const here = await measured;
    if (here) this.build(model, this.found);
    if (!this.request.pending) this.progress.textContent = "";
    this.show();
    if (here) announce(this.fall.textContent);
  }

  build(model, found) {
    const reach = Math.max(...found.heads.flat().map(Math.abs), 0.01);
    this.ramp.set(`−${this.points(reach)}`, `+${this.points(reach)}`);
    this.grid.style.gridTemplateColumns = `auto repeat(${model.heads}, minmax(0, 1fr))`;
    this.grid.replaceChildren();
    found.heads.forEach((row, block) => {
      this.grid.append(element("span", { class: "quiet small", "aria-hidden": "true" }, String(block)));
      row.forEach((change, head) => {
        const name = `block ${block}, head ${head}: ${change < 0 ? "−" : "+"}${this.points(Math.abs(change))}`;
        const button = element("button", { type: "button", class: "importance-head", "data-part": `h${block}.${head}`, "aria-label": name, title: name, onclick: () => this.flip(`h${block}.${head}`), onpointerenter: () => this.read(name), onfocus: () => this.read(name) });
        button.style.backgroundColor = colourOf(0.5 + change / (2 * reach), true);
        this.grid.append(button);
      });
    });
    const flat = found.heads.flat();
    const most = flat.indexOf(Math.min(...flat));
    this.read(`Most needed: block ${Math.floor(most / model.heads)}, head ${most % model.heads} (−${this.points(Math.max(0, -flat[most]))})`);
    this.slider.max = found.order.length;
  }

  points(share) {
    return this.found?.unit === "output" ? share.toPrecision(2) : `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)} points`;
  }

  read(text) {
    this.reading.textContent = `${text}. Of “${className(this.app.current().model, this.found.target)}”, ${percent(this.found.baseline)} with everything on.`;
  }

  /** How many of the least important are off now; -1 when something else is. */
  get off() {
    const count = state.off.size;
    return this.found.order.slice(0, count).every((part) => state.off.has(part)) ? count : -1;
  }

  mark() {
    for (const button of this.grid.querySelectorAll("button")) button.setAttribute("aria-pressed", String(state.off.has(button.dataset.part)));
    this.preview(this.off >= 0 ? this.off : this.removed);
  }

  preview(count) {
    const { found } = this;
    this.removed = count;
    this.slider.value = count;
    this.count.textContent = `${count} of ${found.order.length}`;
    const at = found.counts.reduce((best, value, index) => (Math.abs(value - count) < Math.abs(found.counts[best] - count) ? index : best), 0);
    const judged = found.labelled ? `accuracy on ${found.n_images} validation pictures` : `same answer, of ${found.n_images} pictures`;
    const lines = [
      { name: `confidence in “${className(this.app.current().model, found.target)}”`, values: found.confidence },
      { name: `confidence, random order${found.draws > 1 ? ` (mean of ${found.draws})` : ""}`, values: found.random, dashed: true },
      ...(found.share ? [{ name: judged, values: found.share }] : []),
    ];
    const total = found.order.length;
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => [Math.round(share * total), Math.round(share * total)]);
    const most = found.unit === "output" ? Math.max(...found.confidence, ...found.random, 1e-6) : 1;
    const label = `Confidence while heads are removed: ${percent(found.confidence[0])} with all, ${percent(found.confidence.at(-1))} with none`;
    this.chart.replaceChildren(lineChart({ xs: found.counts, lines, ticks, most, across: "heads switched off", label, cursor: at, pick: (index) => this.remove(found.counts[index]) }), chartKey(lines));
    const share = found.share ? `, ${found.labelled ? "accuracy" : "same answer"} ${percent(found.share[at])}` : "";
    this.fall.textContent = `${found.counts[at]} of ${total} heads off: confidence ${percent(found.confidence[at])}${share}. ${found.half_point} can go before it loses half.${this.app.source.computes ? "" : " To switch several off at once for the whole page, run vitral explore."}`;
  }

  flip(part) {
    const off = this.app.source.computes ? new Set(state.off) : new Set(state.off.has(part) ? [part] : []);
    if (!off.delete(part)) off.add(part);
    update({ off });
  }

  /** Switch them off for the whole page; an exported one knows the line only. */
  remove(count) {
    this.preview(count);
    if (this.app.source.computes) update({ off: new Set(this.found.order.slice(0, count)) });
  }
}
