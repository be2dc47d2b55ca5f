// Small drawings in SVG: shapes, and lines over an axis.

import { percent } from "../core/dom.js";
import { pointIn } from "../core/pointer.js";

export function shape(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** 1, 2 or 5 times a power of ten, at least as large as asked. */
export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least);
}

/**
 * Lines with their names at the side. lines: [{ name, values, dashed }], over xs; `ticks`: [[x, text]]; `cursor`: an index of xs;
 * `pick(index)` is called for the point nearest to a click.
 */
export function lineChart({ xs, lines, ticks, label, across, up = (value) => percent(value, 0), most = 1, cursor = null, pick = null }) {
  const [width, height, left, right, bottom] = [400, 210, 48, 12, 38];
  const last = Math.max(xs[xs.length - 1], xs[0] + 1e-9);
  const x = (value) => left + ((value - xs[0]) / (last - xs[0])) * (width - left - right);
  const y = (value) => height - bottom - (value / most) * (height - bottom - 10);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, class: pick ? "chart lines pickable" : "chart lines", role: "img", "aria-label": label });
  const step = niceStep(most / 4);
  for (let value = 0; value <= most * 1.001; value += step) {
    svg.append(shape("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "rule" }), shape("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, up(value)));
  }
  for (const [value, text] of ticks) svg.append(shape("text", { x: x(value), y: height - bottom + 16, "text-anchor": "middle" }, text));
  svg.append(shape("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, across));
  if (cursor !== null) svg.append(shape("line", { x1: x(xs[cursor]), x2: x(xs[cursor]), y1: 8, y2: height - bottom, class: "cursor" }));
  lines.forEach(({ values, dashed }, index) => {
    const points = values.map((value, at) => `${x(xs[at]).toFixed(1)},${y(Math.min(value, most)).toFixed(1)}`).join(" ");
    svg.append(shape("polyline", { points, class: `line line-${index}${dashed ? " dashed" : ""}` }));
    if (cursor !== null) svg.append(shape("circle", { cx: x(xs[cursor]), cy: y(Math.min(values[cursor], most)), r: 4, class: `point line-${index}` }));
  });
  if (pick) {
    svg.addEventListener("click", (event) => {
      const at = pointIn(event)[0] * width;
      pick(xs.reduce((best, value, index) => (Math.abs(x(value) - at) < Math.abs(x(xs[best]) - at) ? index : best), 0));
    });
  }
  return svg;
}

/** The names of a chart's lines, each with its stroke. */
export function chartKey(lines) {
  const list = document.createElement("ul");
  list.className = "chart-key";
  lines.forEach(({ name, dashed }, index) => {
    const entry = document.createElement("li");
    const mark = shape("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" });
    mark.append(shape("polyline", { points: "1,5 25,5", class: `line line-${index}${dashed ? " dashed" : ""}` }));
    entry.append(mark, name);
    list.append(entry);
  });
  return list;
}

/** Runs through the steps of a slider, one after another; a second press stops. */
export function player(button, slider, every = 450) {
  let timer = 0;
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    button.textContent = "Play";
    button.setAttribute("aria-pressed", "false");
  };
  const go = (value) => {
    slider.value = value;
    slider.dispatchEvent(new Event("input"));
  };
  button.addEventListener("click", () => {
    if (timer) return stop();
    if (Number(slider.value) >= Number(slider.max)) go(0);
    button.textContent = "Stop";
    button.setAttribute("aria-pressed", "true");
    timer = setInterval(() => {
      if (!slider.isConnected || slider.closest("[hidden]") || Number(slider.value) >= Number(slider.max)) return stop();
      go(Number(slider.value) + 1);
    }, every);
  });
}
