// How to look: the method, the block, the head, and how strongly the map covers the picture.

import { byId, element } from "../core/dom.js";
import { display, state, update } from "../core/state.js";
import { segments } from "../draw/parts.js";
import { EXPLAINING, METHODS, blockFor, className, headFor, methodFor, targetFor, whyNot } from "./explain.js";

export class Controls {
  constructor(app) {
    this.app = app;
    this.methods = byId("methods");
    this.methods.append(...segments("method", Object.entries(METHODS).map(([method, [name]]) => [method, name]), (method) => update({ method })));
    this.block = byId("block");
    this.head = byId("head");
    // Similarity is of a block, too; every other method is of the whole model.
    this.block.addEventListener("input", () => update({ block: Number(this.block.value), method: state.method === "similarity" ? state.method : "attention" }));
    this.head.addEventListener("change", () => update({ head: Number(this.head.value), method: "attention" }));
    const redraw = () => app.redraw();
    byId("opacity").addEventListener("input", (event) => {
      display.opacity = Number(event.target.value) / 100;
      redraw();
    });
    for (const name of ["smooth", "lift"]) {
      byId(name).addEventListener("change", (event) => {
        display[name] = event.target.checked;
        redraw();
      });
    }
  }

  pictureText(model, method) {
    if (state.view === "surgery" && this.app.source.computes) {
      const overlap = model.overlap ? " Patches overlap here, so the neighbours lose its pixels too." : "";
      return `Click a patch (or use the arrow keys and Enter) to switch it off or on.${overlap}`;
    }
    if (method === "attention") return "Point at a patch to see what it attends to. Click to keep it.";
    if (method === "similarity") return "Point at a patch to see what resembles it. The white frame marks the nearest patch.";
    const more = model.attention ? "Click one to see what it attends to." : "Point at one to read its value.";
    const { trace } = this.app.current();
    const answer = trace && EXPLAINING.includes(method) ? ` for “${className(model, targetFor(trace))}”` : "";
    return `${method === "occlusion" ? "Red" : "Bright"} patches count most${answer}. ${more}`;
  }

  refresh() {
    const { model } = this.app.current();
    const method = methodFor(model);
    byId("picture-text").textContent = this.pictureText(model, method);
    const reasons = new Set();
    this.methods.querySelectorAll("input").forEach((input) => {
      input.checked = input.value === method;
      const reason = whyNot(model, input.value);
      input.disabled = reason !== "";
      input.parentElement.title = reason;
      reasons.add(reason);
    });
    byId("method-why").textContent = [...reasons].filter(Boolean).map((reason) => `Greyed out: ${reason[0].toLowerCase()}${reason.slice(1)}`).join(" ");
    const [verdict, ...reason] = model.verdicts?.[method]?.split(": ") ?? [];
    const judged = verdict ? [" ", element("strong", {}, `The audit of this model: ${verdict}`), `: ${reason.join(": ")}.`] : [];
    byId("method-text").replaceChildren(METHODS[method]?.[1] ?? "", ...judged);
    byId("depth").hidden = !model.attention;
    if (!model.attention) return;
    this.block.max = model.depth - 1;
    this.block.value = blockFor(model);
    byId("block-number").textContent = blockFor(model);
    if (this.head.options.length !== model.heads + 1) {
      const names = [`mean of ${model.heads}`, ...Array.from({ length: model.heads }, (_, index) => String(index))];
      this.head.replaceChildren(...names.map((name, index) => element("option", { value: index - 1 }, name)));
    }
    this.head.value = headFor(model);
    byId("depth").classList.toggle("resting", method !== "attention" && method !== "similarity");
  }
}
