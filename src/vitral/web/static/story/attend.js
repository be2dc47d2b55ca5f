// Steps four to six of the story: one head's attention, with its numbers.

import { element, percent } from "../core/dom.js";
import { ranking } from "../core/trace.js";
import { limitsOf } from "../draw/colour.js";
import { outline } from "../draw/heat.js";
import { bar } from "../draw/parts.js";
import { drawNumbers, drawTiles } from "../draw/tiles.js";
import { alike } from "./data.js";
import { localNote, prefixNote } from "./notes.js";
import { Step, ease, figure } from "./step.js";
import { leastSpan } from "../views/explain.js";

const BARS = 6;

export class Asks extends Step {
  short = "Ask";

  heading() {
    return "One patch asks, all answer";
  }

  sentence() {
    const { head_width: width, prefix } = this.story;
    const others = prefix > 1 ? ` and ${prefix} more tokens (${this.model.prefix.join(", ")})` : prefix ? ` and the ${this.model.prefix[0]}` : "";
    return `Your patch asks a question (its query, ${width} numbers), all patches${others} hold out their keys (${width} numbers each), and the better the two match, the higher the score.`;
  }

  build() {
    const { story, view } = this;
    view.head = story.head_start;
    this.answering = this.hovered = null;
    this.heads = element("select", { "aria-label": "Head", onchange: () => ((view.head = Number(this.heads.value)), (this.answering = null), view.draw()) });
    for (const head of story.heads) this.heads.append(element("option", { value: head, selected: head === view.head }, `head ${head}`));
    this.ask = element("button", { type: "button", class: "plain", onclick: () => this.letAsk() }, "Let it ask");
    this.chips = element(
      "span",
      { class: "row" },
      ...this.model.prefix.map((name, token) => element("button", { type: "button", class: "chip", onclick: () => this.answerOf(token) }, name)),
    );
    this.touch.append(element("p", {}, "Touch a patch to see its answer, then let it ask itself. Each head asks in its own way."), element("div", { class: "row" }, this.ask, element("label", { class: "small" }, `block ${story.block}, `, this.heads), this.chips));
    this.rows = ["question", "key", "multiplied"].map((name) => this.numbers(name));
    const others = story.prefix ? ` The ${this.model.prefix.join(", ")} belong${story.prefix > 1 ? "" : "s"} to no patch${this.model.reads === 0 ? " (the last step tells what the class token is for)" : ""}; together with the patches they are called tokens.` : " Patches with their vectors are called tokens.";
    this.side.append(...this.rows.map((each) => each.row), element("p", { class: "quiet small" }, `Question and key are made from each vector by two learned tables of numbers.${others}`));
    this.scale = element("div");
    this.below.append(this.scale);
    this.makeTouchable("Scores of the patches. Arrow keys choose whose answer is shown, Enter lets it ask.", () => Math.max(0, this.answerer - story.prefix), (patch) => this.answerOf(story.prefix + patch));
    this.canvas.addEventListener("keydown", (event) => event.key === "Enter" && this.letAsk());
    this.canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && this.hover(this.patchAt(event)));
    this.canvas.addEventListener("pointerleave", () => this.hover(null));
  }

  get asking() {
    return this.story.prefix + this.view.patch;
  }

  get scores() {
    const key = `${this.view.head} ${this.asking}`;
    if (this.known !== key) {
      this.known = key;
      this.found = this.story.scores(this.view.head, this.asking);
    }
    return this.found;
  }

  /** Whose answer is kept: the chosen one's, or the best among the other patches. */
  get kept() {
    const { prefix } = this.story;
    return this.answering ?? ranking(this.scores).find((token) => token >= prefix && token !== this.asking) ?? this.asking;
  }

  /** Whose answer is shown: that of the patch under the mouse, or the one that is kept. */
  get answerer() {
    return this.hovered ?? this.kept;
  }

  hover(patch) {
    const token = patch === null ? null : this.story.prefix + patch;
    if (token === this.hovered) return;
    this.hovered = token;
    this.draw();
  }

  answerOf(token) {
    this.take();
    this.answering = token;
    this.draw();
  }

  letAsk() {
    const patch = this.kept - this.story.prefix;
    this.answering = this.hovered = null;
    if (patch >= 0) this.view.choosePatch(patch);
  }

  draw() {
    const { story, view, scores } = this;
    const { prefix, grid, head_width: width } = story;
    const patches = Float32Array.from(scores.subarray(prefix));
    const limits = limitsOf(patches, false);
    const [row, column] = [Math.floor(view.patch / grid[1]), view.patch % grid[1]];
    const farthest = Math.hypot(...grid);
    const reached = patches.map((value, patch) => (this.clock >= 1 || Math.hypot(Math.floor(patch / grid[1]) - row, (patch % grid[1]) - column) <= this.clock * farthest ? value : limits[0]));
    this.map(reached, { limits, grey: true });
    const answerer = this.answerer;
    if (answerer >= prefix) {
      const [across, down] = [this.canvas.width / grid[1], this.canvas.height / grid[0]];
      outline(this.canvas.getContext("2d"), ((answerer - prefix) % grid[1]) * across, Math.floor((answerer - prefix) / grid[1]) * down, across, down, this.canvas.width, "#ffffff");
    }
    const { query, key, products, match, bias, score } = story.answer(view.head, this.asking, answerer);
    const reach = limitsOf([...query, ...key], true)[1];
    drawNumbers(this.rows[0].canvas, query, reach);
    drawNumbers(this.rows[1].canvas, key, reach);
    drawNumbers(this.rows[2].canvas, products, limitsOf(products, true)[1]);
    const who = this.name(answerer);
    const place = who.replace("patch in ", "");
    this.rows[1].label.textContent = `key of ${answerer < prefix ? "the " : ""}${place}`;
    const signed = (value) => (figure(value).startsWith("−") ? `(${figure(value)})` : figure(value));
    const term = (index) => `${signed(query[index])} × ${signed(key[index])}`;
    const added = story.sections.bias ? `, plus ${figure(bias)} for how they lie: ${figure(score)}` : "";
    const rank = `${1 + patches.filter((value) => value > patches[answerer - prefix]).length} of ${story.patches}`;
    const whose = this.answering === null && this.hovered === null ? `The best answer of another patch: ${place}` : answerer < prefix ? `The answer of the ${who}` : `The answer of ${place}, number ${rank} among the patches`;
    this.reading.textContent = `${whose}. ${term(0)} + ${term(1)} + … (${width} products) = ${figure(match)}, divided by √${width}: ${figure(match / Math.sqrt(width))}${added}.`;
    this.ask.disabled = this.kept < prefix || this.kept === this.asking;
    this.chips.childNodes.forEach((chip, token) => {
      chip.textContent = `${this.name(token)}: ${figure(scores[token])}`;
      chip.setAttribute("aria-pressed", String(token === this.kept));
    });
    this.scale.replaceChildren(this.ramp(`score ${figure(limits[0])}`, figure(limits[1]), false));
    this.heads.value = view.head;
  }
}

export class Shares extends Step {
  short = "Shares";
  seconds = 1.8;

  heading() {
    return "Scores become shares";
  }

  sentence() {
    return "The softmax turns the scores into shares of attention that add up to 100 %: one point more is 2.7 times the share.";
  }

  build() {
    this.sharpness = 1;
    this.slider = element("input", { type: "range", min: -2, max: 2, step: 0.25, value: 0, "aria-label": "Sharpness", oninput: () => this.sharpen() });
    this.label = element("output", { class: "small" });
    this.touch.append(element("p", {}, "Make the scores larger or smaller: what if the model were more decided?"), element("label", { class: "row" }, "Sharpness", this.slider, this.label));
    this.list = element("ol", { class: "share-list" });
    this.side.append(this.list);
    this.scale = element("div");
    this.below.append(this.scale);
  }

  sharpen() {
    this.take();
    this.sharpness = 2 ** Number(this.slider.value);
    this.draw();
    this.slider.setAttribute("aria-valuetext", `${this.sharpness.toPrecision(2)} times the model's own`);
  }

  move(clock) {
    this.sharpness = ease(clock);
    this.slider.value = 0;
  }

  draw() {
    const { story, view } = this;
    const { scores, asking } = view.steps[3];
    const shares = story.shares(scores, this.sharpness);
    const patches = Float32Array.from(shares.subarray(story.prefix));
    const limits = limitsOf(patches, false, leastSpan("attention", story.tokens));
    this.map(patches, { limits, lift: true });
    this.makePicture(`Shares of attention of the ${this.name(asking)}`);
    const own = Math.abs(this.sharpness - 1) < 1e-9;
    this.label.textContent = own ? "× 1, the model's own" : `× ${Number(this.sharpness.toPrecision(2))}`;
    const order = ranking(shares);
    this.list.replaceChildren(
      ...order.slice(0, BARS).map((token) => {
        const name = this.name(token).replace("patch in ", "");
        return element("li", {}, ...bar(name, `${figure(scores[token] * this.sharpness)} → ${percent(shares[token])}`, shares[token] / shares[order[0]]));
      }),
    );
    const raised = scores.map((score) => Math.exp(score * this.sharpness));
    const sum = raised.reduce((all, value) => all + value, 0);
    const best = order[0];
    const first = `2.718 to the power of ${figure(scores[best] * this.sharpness)} is ${power(raised[best])}, of ${power(sum)} in all: ${percent(shares[best])}.`;
    const even = order.filter((token) => shares[token] > 1 / story.tokens).length;
    this.reading.textContent = `${own ? "" : "Not the model's own. "}${Number.isFinite(sum) ? first : ""} ${even} of ${story.tokens} get more than an even share (${percent(1 / story.tokens)}).`;
    this.scale.replaceChildren(this.ramp(percent(limits[0]), percent(limits[1]), false, true));
    this.note(own && localNote(story, view.head), own && prefixNote(story, this.model, story.block));
  }
}

export class Mixes extends Step {
  short = "Mix";
  seconds = 2.2;

  heading() {
    return "The values are mixed";
  }

  sentence() {
    return `Every token hands over a value (${this.story.head_width} numbers), and your patch receives the sum of all of them, each multiplied by its share.`;
  }

  build() {
    const { tokens } = this.story;
    this.count = tokens;
    this.slider = element("input", { type: "range", min: 1, max: tokens, step: 1, value: tokens, "aria-label": "How many values are added", oninput: () => this.add() });
    this.label = element("output", { class: "small" });
    this.touch.append(element("p", {}, "Add the values one by one, the largest share first."), element("label", { class: "row" }, "Added", this.slider, this.label));
    this.below.append(element("p", { class: "quiet small" }, "Each patch is as visible as its share is large."));
    this.rows = Array.from({ length: 4 }, () => this.numbers("value"));
    this.sum = this.numbers("= the mix so far");
    this.side.append(...this.rows.map((each) => each.row), this.sum.row);
    const more = this.model.heads > 1 ? `The other ${this.model.heads - 1 === 1 ? "head does" : `${this.model.heads - 1} heads do`} the same with questions of their own. ` : "";
    this.side.append(element("p", { class: "quiet small" }, `${more}What the heads found is added to the patch's vector; then a small network (MLP) works on every vector by itself. That is one block.`));
  }

  add() {
    this.take();
    this.count = Number(this.slider.value);
    this.draw();
  }

  move(clock) {
    this.count = Math.max(1, Math.round(this.story.tokens ** ease(clock)));
    this.slider.value = this.count;
  }

  draw() {
    const { story, view, trace } = this;
    const { scores } = view.steps[3];
    const shares = story.shares(scores);
    const order = ranking(shares);
    const taken = order.slice(0, this.count);
    const inside = new Set(taken);
    const strongest = Math.max(...shares.subarray(story.prefix));
    const show = (patch) => (inside.has(story.prefix + patch) ? 0.18 + 0.82 * Math.sqrt(shares[story.prefix + patch] / strongest) : 0.05);
    drawTiles(this.canvas, trace.image, story.grid, { show, chosen: view.patch });
    this.makePicture("The patches whose values are added, each as visible as its share");
    const values = order.slice(0, 4).map((token) => story.part("value", view.head, token));
    const whole = story.mix(view.head, shares, order);
    const sum = story.mix(view.head, shares, taken);
    const reach = limitsOf(values.flatMap((value) => [...value]), true)[1];
    this.rows.forEach(({ canvas, label, row }, index) => {
      row.hidden = index >= values.length;
      if (row.hidden) return;
      row.classList.toggle("faint", index >= this.count);
      label.textContent = `${percent(shares[order[index]])} × value of ${order[index] < story.prefix ? "the " : ""}${this.name(order[index]).replace("patch in ", "")}`;
      drawNumbers(canvas, values[index], reach);
    });
    drawNumbers(this.sum.canvas, sum, limitsOf(whole, true)[1]);
    this.label.textContent = `${this.count} of ${story.tokens}`;
    const held = taken.reduce((all, token) => all + shares[token], 0);
    this.reading.textContent = `${this.count} of ${story.tokens} values hold ${percent(held)} of the attention. The mix begins ${[...sum].slice(0, 3).map((value) => figure(value)).join(", ")} and ${this.count === story.tokens ? "is what your patch receives from this head." : `has a similarity of ${figure(alike(sum, whole))} with the whole one (1: the same direction).`}`;
  }
}

/** Large and small numbers as a reader writes them. */
function power(value) {
  if (value >= 0.01 && value < 1e6) return Number(value.toPrecision(3)).toLocaleString("en");
  const [digits, exponent] = value.toExponential(2).split("e");
  const raised = [...String(Number(exponent))].map((sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(sign)])).join("");
  return `${digits} · 10${raised}`;
}
