// Pieces that several views are made of.

import { element } from "../core/dom.js";
import { gradient } from "./colour.js";

/** A name, a number and under both a bar, `share` of it filled; a name or a number may be made of several pieces. */
export function bar(name, number, share) {
  const fill = element("span", { class: "fill" });
  fill.style.inlineSize = `${100 * share}%`;
  return [element("span", { class: "name" }, ...[name].flat()), element("span", { class: "number" }, ...[number].flat()), element("span", { class: "track", "aria-hidden": "true" }, fill)];
}

/** The colours of a map, between what its two ends mean. */
export class Ramp {
  constructor(signed, { lift = false, low = "", high = "", kind = "" } = {}) {
    this.colours = element("div", { class: "ramp", "aria-hidden": "true" });
    this.ends = [element("span", {}, low), element("span", {}, high)];
    this.root = element("div", { class: `legend ${kind}` }, this.ends[0], this.colours, this.ends[1]);
    this.colour(signed, lift);
  }

  colour(signed, lift) {
    this.colours.style.background = gradient(signed, lift);
  }

  set(low, high) {
    this.ends[0].textContent = low;
    this.ends[1].textContent = high;
  }
}

/** The ends of a difference; none without values. */
export function signedEnds(values, [low, high]) {
  return values ? [low.toPrecision(2), `+${high.toPrecision(2)}`] : ["", ""];
}

/** Radio buttons side by side: [value, text] each. */
export function segments(name, entries, choose, chosen = null) {
  return entries.map(([value, text]) => element("label", {}, element("input", { type: "radio", name, value, checked: value === chosen, onchange: () => choose(value) }), element("span", {}, text)));
}
