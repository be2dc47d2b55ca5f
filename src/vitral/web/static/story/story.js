// The story: seven steps from a picture to a class, on one's own picture and model. Here the frame; step.js and its kin have the steps.

import { announce, byId, element, framed, percent } from "../core/dom.js";
import { Request } from "../core/request.js";
import { state, update } from "../core/state.js";
import { Answers } from "./answer.js";
import { Asks, Mixes, Shares } from "./attend.js";
import { Cut, Places, Vectors } from "./embed.js";

const FOLLOWING = "Following your picture through the model …";
const STEPS = [Cut, Vectors, Places, Asks, Shares, Mixes, Answers];

export class StoryView {
  constructor(root, app) {
    Object.assign(this, { root, app, steps: [], trace: null, left: "wall" });
    this.request = new Request(app, { delay: 1000, progress: ({ done, total }) => total && this.say(`${FOLLOWING} ${percent(done / total, 0)}`) });
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.watcher = new IntersectionObserver((entries) => entries.forEach((entry) => this.seen(entry)), { threshold: [0, 0.35] });
    byId("open-story").addEventListener("click", () => this.toggle());
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
    const { prefix, patches, patch_start: start } = this.story;
    return state.token !== null && state.token >= prefix && state.token < prefix + patches ? state.token - prefix : start;
  }

  choosePatch(patch) {
    update({ token: this.story.prefix + patch });
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
    const open = state.view === "story";
    document.body.classList.toggle("in-story", open);
    if (!open) this.request.cancel();
    byId("open-story").textContent = open ? "Leave the story" : "Story in 7 steps";
    byId("open-story").setAttribute("aria-disabled", String(!open && this.reason !== ""));
    byId("open-story").title = open ? "" : this.reason || "From your picture to its class, step by step";
  }

  async refresh() {
    if (state.view !== "story") return;
    if (this.reason) {
      this.request.renew("");
      return this.say(this.reason);
    }
    const trace = this.app.whole;
    if (!trace) return;
    if (!this.request.renew(`${state.model} ${state.picture}`)) return this.draw();
    this.say(FOLLOWING);
    const question = { model: state.model, picture: state.picture };
    const here = await this.request.run((signal) => this.app.source.ask("story", { ...question, signal }));
    if (this.request.error) this.say(`The story could not be told: ${this.request.error.message}.`);
    if (!here) return;
    this.trace = trace;
    this.build();
    this.draw();
  }

  get story() {
    return this.request.answer;
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
