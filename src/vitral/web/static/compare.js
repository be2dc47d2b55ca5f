// Two models on one picture: point at a place in one, and see it in both.

import { element } from "./dom.js";
import { METHODS, methodFor } from "./explain.js";
import { PictureView } from "./picture.js";
import { PredictionsView, predictionText } from "./predictions.js";
import { state, update } from "./state.js";

export class CompareView {
  constructor(root, app) {
    this.app = app;
    this.other = () => (app.session.models.length > 1 ? 1 - state.model : state.model);
    root.append(
      element(
        "p",
        { class: "sentence" },
        "Both models see the same picture: point at a place in one and the frame marks it in the other. Do they look at the same things?",
      ),
    );
    if (app.session.models.length < 2) {
      root.append(
        element("p", { class: "empty" }, "Only one model is here. Start with a second one: "),
        element("p", { class: "empty" }, element("code", {}, "vitral explore MODEL IMAGE --compare MODEL2")),
      );
      return;
    }
    this.title = element("h3", {});
    this.how = element("p", { class: "quiet small" });
    const left = element("div", {});
    const right = element("div", {});
    this.picture = new PictureView(left, app, this.other, "The same picture in the other model");
    this.predictions = new PredictionsView(right, app, this.other, { choose: false });
    this.verdict = element("p", { class: "verdict" });
    this.swap = element("button", { type: "button", class: "plain", onclick: () => update({ model: this.other(), block: null, head: -1, token: null, off: new Set() }) }, "Swap the two models");
    right.append(this.how, this.swap);
    this.body = element("div", { class: "operation compare" }, left, right);
    root.append(this.title, this.verdict, this.body);
  }

  async refresh() {
    const { app } = this;
    if (state.view !== "compare" || !this.picture || !state.picture) return;
    const other = this.other();
    const picture = state.picture;
    const model = app.session.models[other];
    this.title.textContent = model.name;
    try {
      const trace = await app.source.trace(other, picture);
      if (state.picture !== picture || this.other() !== other) return;
      app.traces[other] = trace;
    } catch (error) {
      delete app.traces[other];
      this.verdict.textContent = `${model.name}: ${error.message}.`;
      this.body.hidden = true;
      app.complain(error);
      return;
    }
    this.body.hidden = false;
    const method = methodFor(model);
    const mine = app.current();
    this.how.textContent =
      method === methodFor(mine.model) ? `Both show ${METHODS[method][0]}.` : `Left ${METHODS[methodFor(mine.model)][0]}, here ${METHODS[method][0]}: this model has no ${METHODS[methodFor(mine.model)][0].toLowerCase()}.`;
    const here = predictionText(app.traces[other], model);
    const there = predictionText(mine.trace, mine.model);
    this.verdict.textContent = `${mine.model.name}: ${there}. ${model.name}: ${here}.`;
    this.predictions.refresh();
    await this.picture.refresh();
  }
}
