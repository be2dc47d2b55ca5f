// One head, large: its map on the picture, and its whole matrix of who looks at whom.

import { limitsOf } from "./colour.js";
import { announce, byId } from "./dom.js";
import { blockFor, headFor, headName, leastSpan, tokenFor, tokenName } from "./explain.js";
import { drawScene, fit, tile } from "./heat.js";
import { look } from "./picture.js";

let stepper = null;

export function enlarged() {
  return byId("enlarge").open;
}

/** Open the dialog on the chosen head; `step(key)` walks to another. */
export function enlarge(app, step) {
  const dialog = byId("enlarge");
  stepper = step;
  if (!dialog.dataset.ready) {
    dialog.dataset.ready = "yes";
    dialog.addEventListener("keydown", (event) => {
      if (event.key.startsWith("Arrow") && stepper(event.key) >= 0) {
        event.preventDefault();
        announce(byId("enlarge-title").textContent);
      }
    });
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    byId("enlarge-close").addEventListener("click", () => dialog.close());
  }
  if (!dialog.open) dialog.showModal();
  refreshEnlarged(app);
}

export function refreshEnlarged(app) {
  if (!enlarged()) return;
  const { model, trace } = app.current();
  const block = blockFor(model);
  const head = headFor(model);
  const token = tokenFor(model, trace);
  const { distance, entropy } = trace.header.measures;
  const numbers = head < 0 ? "" : ` Mean attention distance ${distance[block][head].toFixed(0)} pixels, entropy ${entropy[block][head].toFixed(1)} bits.`;
  byId("enlarge-title").textContent = headName(block, head, model.heads);
  byId("enlarge-text").textContent =
    `Left: where the ${tokenName(model, token)} looks. Right: all tokens at once, row = who looks, column = at whom; every row is scaled to its own peak, by square root so that faint weights show.${numbers}`;
  const canvas = byId("enlarge-map");
  fit(canvas, trace.image.height / trace.image.width);
  const values = trace.patches(trace.row(block, head, token));
  drawScene(canvas, {
    image: trace.image,
    grid: trace.grid,
    values,
    signed: false,
    limits: limitsOf(values, false, leastSpan("attention", trace.tokens)),
    opacity: look.opacity,
    smooth: look.smooth,
    lift: look.lift,
    lines: true,
    query: token >= trace.prefix ? token - trace.prefix : null,
  });
  drawMatrix(byId("enlarge-matrix"), trace, block, head);
}

/** (T, T): one pixel a weight. */
function drawMatrix(canvas, trace, block, head) {
  canvas.hidden = !trace.header.whole;
  if (canvas.hidden) return;
  const size = trace.tokens;
  const values = new Float32Array(size * size);
  for (let token = 0; token < size; token++) {
    const row = trace.row(block, head, token);
    const top = row.reduce((most, value) => Math.max(most, value), 1e-12);
    for (let index = 0; index < size; index++) values[token * size + index] = Math.sqrt(row[index] / top);
  }
  tile(values, [size, size], { limits: [0, 1], canvas });
}
