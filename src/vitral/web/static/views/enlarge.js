// One head, large: its map on the picture, and its whole matrix of who looks at whom.

import { announce, byId } from "../core/dom.js";
import { cellAt, pointIn } from "../core/pointer.js";
import { limitsOf } from "../draw/colour.js";
import { drawMap, tile } from "../draw/heat.js";
import { blockFor, headFor, headName, leastSpan, tokenFor, tokenName } from "./explain.js";

let stepper = null;
let followed = null; // the token under the pointer, in this dialog
let matrix = null; // the whole matrix as it was drawn last

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
    byId("enlarge-map").addEventListener("pointermove", (event) => {
      const { trace } = app.current();
      const patch = cellAt(pointIn(event), trace.grid);
      follow(app, patch === null ? null : trace.prefix + patch);
    });
    byId("enlarge-matrix").addEventListener("pointermove", (event) => follow(app, Math.min(app.current().trace.tokens - 1, Math.max(0, Math.floor(pointIn(event)[1] * app.current().trace.tokens)))));
    for (const id of ["enlarge-map", "enlarge-matrix"]) byId(id).addEventListener("pointerleave", () => follow(app, null));
    dialog.addEventListener("close", () => (followed = null));
  }
  if (!dialog.open) dialog.showModal();
  refreshEnlarged(app);
}

/** Map and matrix follow the pointer: it asks for one token, the matrix shows whose row that is. */
function follow(app, token) {
  const traced = token !== null && app.current().trace.has(token) ? token : null;
  if (traced === followed) return;
  followed = traced;
  refreshEnlarged(app);
}

export function refreshEnlarged(app) {
  if (!enlarged()) return;
  const { model, trace } = app.current();
  const block = blockFor(model);
  const head = headFor(model);
  const token = followed ?? tokenFor(model, trace);
  const { distance, entropy } = trace.header.measures;
  const numbers = head < 0 ? "" : ` Mean attention distance ${distance[block][head].toFixed(0)} pixels, entropy ${entropy[block][head].toFixed(1)} bits.`;
  byId("enlarge-title").textContent = headName(block, head, model.heads);
  byId("enlarge-text").textContent =
    `Left: where the ${tokenName(model, token)} looks. Right: all tokens at once, row = who looks, column = at whom; every row is scaled to its own peak, by square root so that faint weights show. Point at either to ask another token.${numbers}`;
  const canvas = byId("enlarge-map");
  const values = trace.patches(trace.row(block, head, token));
  const limits = limitsOf(values, false, leastSpan("attention", trace.tokens));
  const query = token >= trace.prefix ? token - trace.prefix : null;
  drawMap(canvas, { image: trace.image, grid: trace.grid, values, limits, query, lines: true, always: true });
  drawMatrix(byId("enlarge-matrix"), trace, block, head);
  if (followed !== null && trace.header.whole) markRow(byId("enlarge-matrix"), followed);
}

/** All rows but one step back. */
function markRow(canvas, row) {
  const context = canvas.getContext("2d");
  context.fillStyle = "rgb(0 0 0 / 0.62)";
  context.fillRect(0, 0, canvas.width, row);
  context.fillRect(0, row + 1, canvas.width, canvas.height - row - 1);
}

/** (T, T): one pixel a weight. */
function drawMatrix(canvas, trace, block, head) {
  canvas.hidden = !trace.header.whole;
  if (canvas.hidden) return;
  const size = trace.tokens;
  const key = `${block} ${head}`;
  if (matrix?.trace === trace && matrix.key === key) return canvas.getContext("2d").putImageData(matrix.pixels, 0, 0);
  const values = new Float32Array(size * size);
  for (let token = 0; token < size; token++) {
    const row = trace.row(block, head, token);
    const top = row.reduce((most, value) => Math.max(most, value), 1e-12);
    for (let index = 0; index < size; index++) values[token * size + index] = Math.sqrt(row[index] / top);
  }
  tile(values, [size, size], { limits: [0, 1], canvas });
  matrix = { trace, key, pixels: canvas.getContext("2d").getImageData(0, 0, size, size) };
}
