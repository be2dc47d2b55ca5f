// The story: seven steps from a picture to a class, on one's own picture and model. Here the frame; step.js and its kin have the steps.

import { announce, byId, element, framed, percent } from "../core/dom.js";
import { state, update } from "../core/state.js";
import { Answers } from "./answer.js";
import { Asks, Mixes, Shares } from "./attend.js";
import { Cut, Places, Vectors } from "./embed.js";

const STEPS = [Cut, Vectors, Places, Asks, Shares, Mixes, Answers];

export class StoryView {
  constructor(root, app) {
    Object.assign(this, { root, app, key: "", steps: [], asking: null, telling: null, trace: null, left: "wall" });
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.watcher = new IntersectionObserver((entries) => entries.forEach((entry) => this.seen(entry)), { threshold: [0, 0.35] });
    byId("tell").addEventListener("click", () => this.toggle());
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address holds the view
      (state.view === "story" ? this.root : byId("work")).focus();
    });
    window.addEventListener("resize", () => this.draw());
    window.addEventListener("scroll", framed(() => this.here()), { passive: true });
  }

  get model() {
    return this.app.session.models[state.model];
  }

  /** The reader's own patch: the one that the address names, or the one with most contrast. */
  get patch() {
    const { prefix, patches, patch_start: start } = this.telling;
    return state.token !== null && state.token >= prefix && state.token < prefix + patches ? state.token - prefix : start;
  }

  choosePatch(patch) {
    update({ token: this.telling.prefix + patch });
  }

  /** Why this model has no story; empty where it has one. */
  get reason() {
    return this.model.attention ? "" : `The story follows patches that ask each other, and a ${this.model.family} has none: its filters slide over the whole picture. It is told of Vision Transformers.`;
  }

  toggle() {
    if (state.view === "story") return update({ view: this.left });
    if (this.reason) return this.app.complain(new Error(this.reason));
    this.left = state.view;
    update({ view: "story" });
    window.scrollTo(0, 0);
    this.root.focus({ preventScroll: true });
  }

  /** What the rest of the page shows of the story: that it is told, or that it can be. */
  mark() {
    const tells = state.view === "story";
    document.body.classList.toggle("telling", tells);
    if (!tells) this.asking?.abort();
    byId("tell").textContent = tells ? "Leave the story" : "Story in 7 steps";
    byId("tell").setAttribute("aria-disabled", String(!tells && this.reason !== ""));
    byId("tell").title = tells ? "" : this.reason || "From your picture to its class, step by step";
  }

  async refresh() {
    if (state.view !== "story") return;
    if (this.reason) {
      this.key = "";
      return this.say(this.reason);
    }
    const trace = this.app.whole;
    if (!trace) return;
    const key = `${state.model} ${state.picture}`;
    if (key === this.key) return this.draw();
    this.key = key;
    this.asking?.abort(); // nobody waits for the old one any more
    const asking = (this.asking = new AbortController());
    this.say("Following your picture through the model …");
    const late = setTimeout(() => this.showProgress(asking), 1000);
    try {
      const telling = await this.app.source.ask("story", { model: state.model, picture: state.picture, signal: asking.signal });
      if (this.key !== key) return;
      Object.assign(this, { telling, trace });
    } catch (error) {
      if (this.key !== key) return;
      this.key = "";
      if (error.name === "AbortError") return;
      this.say(`The story could not be told: ${error.message}.`);
      return this.app.complain(error);
    } finally {
      clearTimeout(late);
      if (this.asking === asking) this.asking = null;
    }
    this.build();
    this.draw();
  }

  /** How far a large model is, until it is done. */
  async showProgress(asking) {
    while (this.asking === asking) {
      const { done, total } = await this.app.source.work().catch(() => ({}));
      if (this.asking === asking && total) this.say(`Following your picture through the model … ${percent(done / total, 0)}`);
      await new Promise((resolve) => setTimeout(resolve, 400));
    }
  }

  say(text) {
    this.steps = [];
    this.watcher.disconnect();
    this.root.replaceChildren(element("p", { class: "card welcome sentence", role: "status" }, text));
  }

  build() {
    this.watcher.disconnect();
    this.steps = STEPS.map((Step, index) => new Step(this, index + 1));
    this.links = this.steps.map((step, index) =>
      element("button", { type: "button", onclick: () => this.go(index) }, element("b", {}, String(index + 1)), element("span", {}, ` ${step.short}`)),
    );
    this.off = element("p", { class: "notice" }, "Some parts are switched off in the explorer. The story is of the whole model.");
    this.root.replaceChildren(
      element("nav", { class: "story-steps", "aria-label": "Steps of the story" }, ...this.links),
      element("div", { class: "story-head" }, element("h2", {}, `How ${this.model.name} sees “${this.app.pictureName()}”`), element("p", { class: "sentence" }, "Scroll. Every number is of this picture in this model."), this.off),
      ...this.steps.map((step) => step.root),
      element("div", { class: "story-end" }, element("button", { type: "button", class: "strong", onclick: () => this.toggle() }, "Look around in the explorer")),
    );
    for (const step of this.steps) this.watcher.observe(step.root);
    this.here();
  }

  draw() {
    if (state.view !== "story" || !this.steps.length) return;
    this.off.hidden = !state.off.size;
    for (const step of this.steps) step.draw();
  }

  /** A step that comes into sight moves, again each time it comes back. */
  seen(entry) {
    const step = this.steps.find((each) => each.root === entry.target);
    if (!step) return;
    if (!entry.isIntersecting) step.rest();
    else if (entry.intersectionRatio >= 0.35 || entry.intersectionRect.height > 0.5 * innerHeight) step.play();
  }

  /** Mark the step that is being read: the last one that has come up to the middle of the screen. */
  here() {
    if (state.view !== "story" || !this.steps.length) return;
    const index = Math.max(0, this.steps.findLastIndex((step) => step.root.getBoundingClientRect().top < innerHeight / 2));
    this.links.forEach((link, at) => (at === index ? link.setAttribute("aria-current", "step") : link.removeAttribute("aria-current")));
  }

  go(index) {
    const { root, title } = this.steps[index];
    root.scrollIntoView({ behavior: this.still.matches ? "auto" : "smooth", block: "start" });
    title.focus({ preventScroll: true });
    announce(title.textContent);
  }
}
