// What the model says: the most probable classes, and the one to explain.

import { element, percent, toast } from "../core/dom.js";
import { state, update } from "../core/state.js";
import { bar } from "../draw/parts.js";
import { EXPLAINING, METHODS, className, methodFor, methodsOf, targetFor } from "./explain.js";

const SHOWN = 5;
let lists = 0;

export class PredictionsView {
  constructor(root, app, which, { choose = true } = {}) {
    Object.assign(this, { app, which });
    this.bars = element("ul", { class: "bars" });
    root.append(this.bars);
    if (!choose) return;
    const id = `classes-${lists++}`;
    this.list = element("datalist", { id });
    this.search = element("input", { type: "search", placeholder: "another class …", autocomplete: "off", "aria-label": "Explain another class" });
    this.search.setAttribute("list", id);
    this.search.addEventListener("change", () => this.find());
    root.append(this.search, this.list);
  }

  refresh() {
    const trace = this.app.traces[this.which()];
    const model = this.app.session.models[this.which()];
    if (!trace) return;
    if (this.search) this.search.hidden = !model.classes;
    if (!model.classes) {
      this.bars.replaceChildren(element("li", { class: "quiet" }, "This model has no head: it gives features, not classes."));
      return;
    }
    const target = targetFor(trace);
    const answers = answersOf(trace, model);
    const shown = trace.order.filter((index, place) => place < SHOWN || answers?.has(index));
    if (!shown.includes(target)) shown.push(target);
    const single = trace.logits.length === 1 && !answers;
    const whole = state.off.size && this.which() === state.model ? this.app.whole : null;
    const number = (value) => (single ? value.toFixed(3) : percent(value));
    this.bars.replaceChildren(
      ...shown.map((index) => {
        const share = trace.probabilities[index];
        const name = [answers && (answers.has(index) ? "✓ " : "– "), className(model, index)];
        const numbers = [number(share), whole && element("span", { class: "quiet small" }, ` whole ${number(whole.probabilities[index])}`)];
        return element(
          "li",
          {},
          element(
            "button",
            {
              type: "button",
              class: "bar",
              "aria-pressed": String(index === target),
              title: `explain “${className(model, index)}”${answers ? `; an answer from ${percent(model.thresholds[index])} on` : ""}`,
              onclick: () => this.explain(model, index, trace.order[0]),
            },
            ...bar(name, numbers, single ? 1 : Math.max(share, 0.005)),
          ),
        );
      }),
    );
    if (this.list && this.list.dataset.model !== model.name) {
      this.list.dataset.model = model.name;
      this.list.replaceChildren(...Array.from({ length: model.classes }, (_, index) => element("option", { value: `${className(model, index)} (${index})` })));
    }
  }

  /** Explain a class, by the current method where that is possible. */
  explain(model, index, first) {
    const target = index === first ? null : index;
    const allowed = methodsOf(model, target);
    const shown = methodFor(model);
    const method = [shown, ...EXPLAINING].find((each) => EXPLAINING.includes(each) && allowed.includes(each));
    if (!method || method === shown) return update({ target });
    const reason = EXPLAINING.includes(shown) ? "is not on this page for this class" : "is the same for every class";
    toast(`${METHODS[shown][0]} ${reason}. This is ${METHODS[method][0]} for “${className(model, index)}”.`);
    update({ target, method });
  }

  /** A class by its name, or by the number in brackets or alone. */
  find() {
    const model = this.app.session.models[this.which()];
    const text = this.search.value.trim();
    const number = text.match(/\((\d+)\)$|^(\d+)$/);
    const index = number ? Number(number[1] ?? number[2]) : model.names.indexOf(text);
    if (text && index >= 0 && index < model.classes) {
      this.explain(model, index, null);
      this.search.value = "";
    } else if (text) {
      this.app.complain(Object.assign(new Error(`there is no class “${text}”`), { hint: "choose one from the list" }));
    }
  }
}

/** Of a model that gives several labels: the classes at or above their thresholds; else null. */
function answersOf(trace, model) {
  if (!model.thresholds?.length) return null;
  return new Set(trace.order.filter((index) => trace.probabilities[index] >= model.thresholds[index]));
}

export function predictionText(trace, model) {
  if (!trace || !model.classes) return "";
  const answers = answersOf(trace, model);
  if (answers) return [...answers].map((index) => `${className(model, index)}, ${percent(trace.probabilities[index])}`).join("; ") || "no label";
  return `${className(model, trace.order[0])}, ${percent(trace.probabilities[trace.order[0]])}`;
}
