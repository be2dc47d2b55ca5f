// Puts the page together: one source, one state, one view a module.

import { announce, byId, element, toast } from "./core/dom.js";
import { openSource } from "./core/source.js";
import { fromHash, state, subscribe, update } from "./core/state.js";
import { applyTheme, nextTheme } from "./core/theme.js";
import { showProof } from "./in_browser/proof.js";
import { StoryView } from "./story/story.js";
import { CompareView } from "./views/compare.js";
import { Controls } from "./views/controls.js";
import { DepthView } from "./views/depth.js";
import { FeatureShelf } from "./views/features.js";
import { FiguresView } from "./views/figures.js";
import { ImportanceView } from "./views/importance.js";
import { PictureView } from "./views/picture.js";
import { bindPlain } from "./views/plain.js";
import { PredictionsView, predictionText } from "./views/predictions.js";
import { saveClip, saveDrawing, savePicture } from "./views/save.js";
import { SimilarView } from "./views/similar.js";
import { SurgeryView } from "./views/surgery.js";
import { TrainingView } from "./views/training.js";
import { WallView } from "./views/wall.js";

const VIEWS = { wall: "Wall", depth: "Depth", similar: "Similar", surgery: "Surgery", model: "The model", compare: "Compare", training: "Training" };

const UPLOADED = "vitral-uploaded";

class App {
  constructor(source) {
    this.source = source;
    this.session = source.session;
    this.traces = [];
    this.whole = null; // the chosen model with everything on
    this.pictures = [...this.session.pictures, ...(source.inBrowser ? [] : uploaded(this.session.pictures))];
    this.features = new FeatureShelf(this);
    const which = () => state.model;
    this.picture = new PictureView(byId("picture"), this, which, "The picture as the model sees it. Arrow keys choose a patch, Escape what the head reads.");
    byId("picture").querySelector(".stage").after(byId("cut")); // where the finger is
    this.predictions = new PredictionsView(byId("predictions"), this, which);
    this.controls = new Controls(this);
    this.panels = {
      wall: new WallView(byId("panel-wall"), this),
      depth: new DepthView(byId("panel-depth"), this),
      similar: new SimilarView(byId("panel-similar"), this),
      surgery: together(new SurgeryView(byId("panel-surgery"), this), new ImportanceView(byId("panel-surgery"), this)),
      model: new FiguresView(byId("panel-model"), this),
      compare: new CompareView(byId("panel-compare"), this),
      training: new TrainingView(byId("panel-training"), this),
      story: new StoryView(byId("story"), this),
    };
    this.fillTabs();
    this.fillModels();
    this.bind();
  }

  current() {
    return { model: this.session.models[state.model], trace: this.traces[state.model] ?? null };
  }

  /** The parts that are off in what the page shows of a model; an exported page computed its maps with everything on. */
  partsOff(model = state.model) {
    return this.source.computes && model === state.model ? state.off : new Set();
  }

  pictureName() {
    return this.pictures.find((entry) => entry.picture === state.picture)?.name ?? "";
  }

  complain(error) {
    toast(error.message, error.hint ?? "");
    announce(error.message);
  }

  /** Draw again what depends on how, not on what, one looks. */
  redraw() {
    this.picture.draw();
    this.panels[state.view].refresh();
    this.panels.compare.picture?.draw();
  }

  async changed(fields) {
    if (["picture", "model", "off"].some((name) => fields.has(name))) await this.load();
    else this.refresh();
  }

  /** Ask for the chosen picture in the chosen model. */
  async load() {
    this.markPictures();
    this.markModels();
    const { picture, model, off } = state;
    const current = () => state.picture === picture && state.model === model && state.off === off;
    this.controls.refresh();
    if (!picture) return;
    const began = performance.now();
    document.body.classList.add("loading");
    try {
      const whole = await this.source.ask("trace", { model, picture });
      const trace = off.size ? await this.without(model, picture, off) : whole;
      if (!current()) return;
      if (trace === null) return update({ off: new Set() });
      this.traces = [];
      this.traces[model] = trace;
      this.whole = whole;
    } catch (error) {
      if (current()) this.fail(error);
      return;
    } finally {
      document.body.classList.remove("loading");
    }
    byId("empty").hidden = byId("failed").hidden = true;
    byId("work").hidden = false;
    this.refresh();
    performance.measure("vitral-first-maps", { start: began, end: performance.now() });
    const shown = this.current();
    announce(`${this.pictureName()}: ${predictionText(shown.trace, shown.model)}`);
  }

  /** The trace of the model without some parts; null where there is none to be had, such as of parts that do not exist. */
  async without(model, picture, off) {
    try {
      return await this.source.ask("trace", { model, picture, off });
    } catch (error) {
      if (this.source.computes && error.status !== 422) throw error;
      this.complain(error);
      return null;
    }
  }

  /** What is switched off is said where it is seen, with what it does. */
  markCut() {
    const { model, trace } = this.current();
    const mark = byId("cut");
    mark.hidden = !state.off.size || !trace;
    if (mark.hidden) return;
    const [before, after] = [this.whole, trace].map((each) => predictionText(each, model));
    const rest = this.source.computes ? "Everything here shows the model without." : "Prediction and surgery show the model without; picture, maps and wall show it whole, because no more was computed.";
    byId("cut-text").textContent = `${state.off.size === 1 ? "1 part is" : `${state.off.size} parts are`} off: ${after || "no classes"}${before ? ` (whole model: ${before})` : ""}. ${rest}`;
  }

  /** Nothing of another picture stays under the name of one that did not come. */
  fail(error) {
    this.complain(error);
    byId("failed-title").textContent = `“${this.pictureName() || "This picture"}” could not be shown`;
    byId("failed-text").textContent = `${error.message}${error.hint ? `: ${error.hint}` : ""}.`;
    this.traces = [];
    this.picture.refresh();
    byId("work").hidden = byId("empty").hidden = true;
    byId("failed").hidden = false;
    if (error.status !== 404) return;
    this.pictures = this.pictures.filter((entry) => entry.picture !== state.picture || this.session.pictures.includes(entry));
    this.remember();
    this.markPictures();
  }

  /** Uploads outlive a reload of the page, where a server has them. */
  remember() {
    if (this.source.inBrowser) return;
    try {
      sessionStorage.setItem(UPLOADED, JSON.stringify(this.pictures.filter((entry) => !this.session.pictures.includes(entry))));
    } catch {
      // a browser that keeps nothing loses the chips, no more
    }
  }

  refresh() {
    this.markTabs();
    this.markCut();
    this.controls.refresh();
    this.picture.refresh();
    this.predictions.refresh();
    this.panels[state.view].refresh();
  }

  // The frame

  fillTabs() {
    for (const [view, name] of Object.entries(VIEWS)) {
      byId("tabs").append(
        element("button", { type: "button", role: "tab", id: `tab-${view}`, "aria-controls": `panel-${view}`, onclick: () => this.turnTo(view) }, name),
      );
    }
    byId("tab-training").hidden = !this.session.models.some((model) => model.film?.length);
    byId("tabs").addEventListener("keydown", (event) => {
      const names = Object.keys(VIEWS).filter((name) => !byId(`tab-${name}`).hidden);
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const view = names[(names.indexOf(state.view) + step + names.length) % names.length];
      this.turnTo(view);
      byId(`tab-${view}`).focus();
    });
  }

  /** A view. Similar shows its own map, and the other views keep theirs. */
  turnTo(view) {
    const { view: left, method } = state;
    if (view === "similar" && left !== view) this.before = method;
    if (view === "similar") return update({ view, method: "similarity" });
    update(left === "similar" && method === "similarity" ? { view, method: this.before ?? null } : { view });
  }

  markTabs() {
    this.panels.story.mark();
    document.body.classList.toggle("comparing", state.view === "compare" && this.session.models.length > 1);
    for (const view of Object.keys(VIEWS)) {
      const chosen = view === state.view;
      byId(`tab-${view}`).setAttribute("aria-selected", String(chosen));
      byId(`tab-${view}`).tabIndex = chosen ? 0 : -1;
      byId(`panel-${view}`).hidden = !chosen;
    }
  }

  fillModels() {
    const box = byId("models");
    this.session.models.forEach((model, index) => {
      const size = model.parameters < 1e6 ? `${Math.round(model.parameters / 1e3)} k` : `${(model.parameters / 1e6).toFixed(model.parameters < 1e7 ? 1 : 0)} M`;
      const shape = model.attention ? ` · ${model.depth} × ${model.heads} heads · ${model.grid.join(" × ")} ${model.overlap ? "overlapping " : ""}patches` : ` · ${model.family}`;
      const assumed = model.assumptions.length ? `Assumed, because the file does not say: ${model.assumptions.join("; ")}` : "";
      const choose = () => this.chooseModel(index);
      box.append(
        element("button", { type: "button", class: "model", title: assumed, onclick: choose }, element("b", {}, model.name), element("span", { class: "quiet" }, size + shape)),
      );
    });
  }

  /** Another model, looked at in the same way: block and head stay, and the patch where both have the same ones. */
  chooseModel(index) {
    const [from, to] = [this.session.models[state.model], this.session.models[index]];
    const patch = state.token === null ? -1 : state.token - from.prefix.length;
    const kept = patch >= 0 && String(from.grid) === String(to.grid) && to.attention;
    update({ model: index, token: kept ? to.prefix.length + patch : null, off: new Set() });
  }

  markModels() {
    [...byId("models").children].forEach((button, index) => button.setAttribute("aria-pressed", String(index === state.model)));
  }

  markPictures() {
    const strip = byId("pictures");
    strip.replaceChildren(
      ...this.pictures.map((entry) =>
        element("button", { type: "button", class: "chip", title: entry.name, "aria-pressed": String(entry.picture === state.picture), onclick: () => update({ picture: entry.picture, target: null, token: null, off: withoutPatches() }) }, entry.thumb && element("img", { src: entry.thumb, alt: "" }), element("span", {}, entry.name)),
      ),
    );
    const chosen = strip.querySelector("[aria-pressed=true]");
    if (chosen) strip.scrollLeft = chosen.offsetLeft - strip.offsetLeft - (strip.clientWidth - chosen.offsetWidth) / 2;
  }

  bind() {
    const input = byId("file");
    byId("open").addEventListener("click", () => input.click());
    byId("open-first").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      this.upload([...input.files]);
      input.value = "";
    });
    for (const [id, save] of Object.entries({ save: savePicture, "save-drawing": saveDrawing, "save-clip": saveClip })) {
      byId(id).addEventListener("click", () => {
        byId("save-as").open = false;
        save(this.picture, this);
      });
    }
    const menu = byId("save-as");
    document.addEventListener("pointerdown", (event) => menu.contains(event.target) || (menu.open = false));
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      menu.open = false;
      menu.firstElementChild.focus();
    });
    bindPlain(this);
    byId("link").addEventListener("click", () => this.copyLink());
    byId("theme").addEventListener("click", nextTheme);
    byId("cut-reset").addEventListener("click", () => {
      update({ off: new Set() });
      byId("picture").querySelector("canvas").focus();
    });
    byId("retry").addEventListener("click", () => this.load());
    document.addEventListener("vitral-found", () => byId("failed").hidden || this.load());
    window.addEventListener("hashchange", () => update(this.sane(fromHash(location.hash)), true));
    window.addEventListener("resize", () => this.redraw());
    for (const name of ["dragenter", "dragover"]) {
      document.addEventListener(name, (event) => {
        event.preventDefault();
        document.body.classList.add("dropping");
      });
    }
    document.addEventListener("dragleave", (event) => event.relatedTarget ?? document.body.classList.remove("dropping"));
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      document.body.classList.remove("dropping");
      this.upload([...event.dataTransfer.files]);
    });
    document.addEventListener("paste", (event) => this.upload([...event.clipboardData.files]));
    subscribe((fields) => this.changed(fields));
  }

  async upload(files) {
    for (const file of files) {
      try {
        const entry = await this.source.upload(file);
        if (!this.pictures.some((known) => known.picture === entry.picture)) this.pictures.push(entry);
        this.remember();
        if (state.picture === entry.picture) await this.load();
        else update({ picture: entry.picture, target: null, token: null, off: withoutPatches() });
      } catch (error) {
        this.complain(error);
      }
    }
  }

  async copyLink() {
    try {
      await navigator.clipboard.writeText(location.href);
      toast(`link copied: ${linkReaches()}`);
    } catch {
      toast("the address bar holds the link to this view");
    }
  }

  /** A view from an address, made to fit what is here. */
  sane(view) {
    if (view.model < 0 || view.model >= this.session.models.length) view.model = 0;
    view.picture ??= this.pictures[0]?.picture ?? null;
    return view;
  }

  start() {
    Object.assign(state, this.sane(fromHash(location.hash)));
    byId("open").hidden = !this.source.computes;
    byId("open-first").hidden = !this.source.computes;
    byId("offline").hidden = this.source.computes;
    byId("offline-classes").hidden = !this.session.models.some((model) => model.classes);
    this.markTabs();
    if (this.source.inBrowser) return this.load().then(() => showProof(this.source));
    return this.load();
  }
}

/** Two views in one panel. */
function together(...views) {
  return { refresh: () => views.forEach((view) => view.refresh()) };
}

/** For whom a copied link works. */
function linkReaches() {
  if (location.protocol === "file:") return "it opens this view of the file on this computer; to show it to others, send them the file";
  if (/^(localhost|127\.[\d.]+|\[::1\])$/.test(location.hostname)) return "it works on this computer only, while vitral explore runs; for others make a page with vitral explore MODEL IMAGE --export page.html";
  return "it works while vitral explore runs, for those who have opened its address with the token";
}

/** What was uploaded before the page was loaded again. */
function uploaded(given) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(UPLOADED) ?? "[]");
    return kept.filter((entry) => /^[0-9a-f]{16}$/.test(entry.picture) && !given.some((known) => known.picture === entry.picture));
  } catch {
    return [];
  }
}

function withoutPatches() {
  return new Set([...state.off].filter((part) => part[0] !== "p"));
}

applyTheme();
openSource()
  .then((source) => new App(source).start())
  .then(() => document.body.classList.add("ready"))
  .catch((error) => {
    toast(error.message, error.hint ?? "");
    throw error;
  });
