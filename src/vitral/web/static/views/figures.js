// The model's own figures: what its first layer looks for, how its positions resemble each other, how far its heads look.

import { element, percent, rovingStep } from "../core/dom.js";
import { Request } from "../core/request.js";
import { state, update } from "../core/state.js";
import { niceStep, shape } from "../draw/chart.js";
import { drawPositions } from "../draw/heat.js";
import { Ramp, segments } from "../draw/parts.js";
import { drawPattern } from "../draw/tiles.js";
import { blockFor, headFor } from "./explain.js";

export class FiguresView {
  constructor(root, app) {
    Object.assign(this, { app, request: new Request(app), measure: "distance" });
    this.filters = element("div", { class: "filters" });
    this.positions = element("div", {});
    this.chart = element("div", {});
    root.append(
      panel("First layer", "Each tile is a pattern that patches are compared with, the most important first: colours and edges mean that it learned to see.", this.filters),
      panel("Positions", "Each small square is one position: bright where its vector resembles that of another place. Neighbours alike means that it learned where patches lie.", this.positions),
      panel("How far heads look", "One dot is one head on this picture: high dots gather from far away, low ones from next door. Click one to see it.", this.chart),
    );
  }

  async refresh() {
    if (state.view !== "model") return;
    const { app } = this;
    const { model, trace } = app.current();
    if (trace) this.drawChart(model, trace);
    if (!this.request.renew(String(state.model))) return;
    const here = await this.request.run(() => Promise.all(app.session.models.map((_, index) => app.source.ask("figures", { model: index }))));
    if (!here) return;
    const all = this.request.answer;
    // The other model's first layer beside this one's: where a CNN is compared, its filters are the ones the papers show.
    const order = [state.model, ...app.session.models.keys()].filter((index, at, list) => list.indexOf(index) === at);
    this.filters.replaceChildren(...order.map((index) => drawFilters(filtersOf(all[index]))));
    this.showPositions(all[state.model].header.positions, all[state.model].sections.positions);
  }

  showPositions(positions, values) {
    if (positions.reason) {
      this.positions.replaceChildren(element("p", { class: "empty" }, positions.reason));
      return;
    }
    const canvas = element("canvas", { class: "sheet", role: "img" });
    canvas.setAttribute("aria-label", `Similarity of ${positions.grid[0] * positions.grid[1]} positions: ${positions.finding}`);
    drawPositions(canvas, values, positions.grid);
    this.positions.replaceChildren(canvas, new Ramp(false, { low: "unlike", high: "alike" }).root, element("p", { class: "quiet small" }, `Measured: ${positions.finding}.`));
  }

  drawChart(model, trace) {
    if (!model.attention) {
      this.chart.replaceChildren(element("p", { class: "empty" }, `A ${model.family} has no heads.`));
      return;
    }
    const measure = trace.header.measures[this.measure];
    const unit = this.measure === "distance" ? "pixels" : "bits";
    const most = Math.max(...measure.flat(), 1e-9);
    const step = niceStep(most / 4);
    const top = Math.max(most * 1.06, step);
    const [width, height, left, bottom] = [520, 230, 44, 34];
    const x = (block) => left + ((block + 0.5) / model.depth) * (width - left - 8);
    const y = (value) => height - bottom - (value / top) * (height - bottom - 10);
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "group", "aria-label": `Mean attention ${this.measure} of each head by block` });
    for (let value = 0; value <= top; value += step) {
      svg.append(shape("line", { x1: left, x2: width - 8, y1: y(value), y2: y(value), class: "rule" }), shape("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, Number(value.toPrecision(3))));
    }
    const every = Math.ceil(model.depth / 12);
    const chosen = [blockFor(model), headFor(model)];
    for (let block = 0; block < model.depth; block++) {
      if (block % every === 0) svg.append(shape("text", { x: x(block), y: height - bottom + 16, "text-anchor": "middle" }, block));
      measure[block].forEach((value, head) => {
        const dot = shape("circle", { cx: x(block), cy: y(value), r: 4.5, class: block === chosen[0] && head === chosen[1] ? "dot chosen" : "dot" });
        dot.append(shape("title", {}, `block ${block}, head ${head}: ${value.toFixed(1)} ${unit}`));
        dot.addEventListener("click", () => update({ block, head, method: "attention" }));
        const name = `block ${block}, head ${head}: ${value.toFixed(1)} ${unit}`;
        for (const [key, text] of Object.entries({ role: "button", tabindex: -1, "aria-label": name, "data-head": `${block}.${head}` })) dot.setAttribute(key, text);
        svg.append(dot);
      });
    }
    svg.append(shape("text", { x: (left + width) / 2, y: height - 2, "text-anchor": "middle" }, "block"));
    const choice = element("div", { class: "segments", role: "radiogroup", "aria-label": "Measure" });
    const choose = (name) => ((this.measure = name), this.drawChart(model, trace));
    choice.append(...segments("measure", [["distance", "distance (pixels)"], ["entropy", "entropy (bits)"]], choose, this.measure));
    const focused = this.chart.contains(document.activeElement) ? document.activeElement.dataset.head : null;
    this.chart.replaceChildren(choice, svg);
    const dots = [...svg.querySelectorAll(".dot")];
    (svg.querySelector(".chosen") ?? dots[0])?.setAttribute("tabindex", 0);
    if (focused) svg.querySelector(`[data-head="${focused}"]`)?.focus(); // the chart is drawn anew when a dot is chosen
    svg.addEventListener("keydown", (event) => this.walk(event, dots, model.heads));
  }

  /** Arrow keys walk the dots, block by block and head by head; Enter chooses. */
  walk(event, dots, heads) {
    const index = dots.indexOf(document.activeElement);
    if (index < 0) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      dots[index].dispatchEvent(new Event("click"));
      return;
    }
    const swapped = { ArrowRight: "ArrowDown", ArrowLeft: "ArrowUp", ArrowDown: "ArrowRight", ArrowUp: "ArrowLeft" }[event.key] ?? event.key;
    const next = rovingStep(swapped, index, dots.length, heads);
    if (next < 0) return;
    event.preventDefault();
    dots[index].setAttribute("tabindex", -1);
    dots[next].setAttribute("tabindex", 0);
    dots[next].focus();
  }
}

function panel(title, sentence, body) {
  return element("section", { class: "figure" }, element("h3", {}, title), element("p", { class: "sentence" }, sentence), body);
}

function filtersOf({ header, sections }) {
  return { ...header.filters, shape: header.sections.find((each) => each.name === "filters").shape, bytes: sections.filters };
}

export function drawFilters({ shape: [count, rows, columns], bytes, explained, title }) {
  const box = element("div", { class: "tiles", role: "img" });
  box.setAttribute("aria-label", title);
  for (let index = 0; index < count; index++) {
    const canvas = element("canvas", {});
    drawPattern(canvas, bytes.subarray(index * rows * columns * 3, (index + 1) * rows * columns * 3), [rows, columns]);
    if (explained) canvas.title = `component ${index + 1}: ${percent(explained[index])} of the variance`;
    box.append(canvas);
  }
  const share = explained ? `, ${percent(explained.reduce((sum, value) => sum + value, 0))} of the variance` : "";
  return element("div", {}, box, element("p", { class: "quiet small" }, title + share));
}
