// A page that runs its model says so, what rounding its weights changes, and whether it computes what Python computes.

import { byId, percent } from "../core/dom.js";

const TOLERANCE = 1e-3;
/** ViT-Ti on photographs of pets, from results/measured/live-rounding.json; tests/web/test_live.py compares the two. */
const MEASURED = { answers: 100, changed: 1, most: 0.0403 };

/** Run each model on its test input and show how far the answer is from Python's. */
export async function showProof(source) {
  const line = byId("runs");
  const shown = "This file contains the model, its weights rounded to 8 bits, and runs it here. Drop any picture: nothing leaves this computer.";
  line.hidden = false;
  line.textContent = shown;
  const off = await source.check();
  const right = off <= TOLERANCE;
  line.classList.toggle("strong-notice", !right);
  const { rounding } = source.session;
  const own = rounding ? ` On its own pictures this page changes ${changesOf(rounding)}.` : "";
  line.textContent = right
    ? `${shown} Verified on a test input: the logits match Python with the same rounded weights to ${off.toExponential(0)}. With ViT-Ti on photographs of pets, rounding changed ${changesOf(MEASURED)}.${own}`
    : `Do not trust this page. On a test input this browser's logits differ from Python's by ${percent(off)} of the largest.`;
}

function changesOf({ answers, changed, most }) {
  return `${changed} of ${answers} answers, and a probability by at most ${(100 * most).toFixed(2)} percentage points`;
}
