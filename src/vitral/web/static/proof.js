// A page that runs its model says so, and whether it computes what Python computed.

import { byId, percent } from "./dom.js";

const TOLERANCE = 1e-3;

/** Run each model on its test input and say how far the answer is from Python's. */
export async function showProof(source) {
  const line = byId("runs");
  const said = "This file holds the model, with weights rounded to 8 bits, and runs it here: drop any picture. Nothing leaves this computer.";
  line.hidden = false;
  line.textContent = said;
  const off = await source.check();
  const right = off <= TOLERANCE;
  line.classList.toggle("strong-notice", !right);
  line.textContent = right
    ? `${said} Checked now: on a test input its logits are those that Python computed, to ${off.toExponential(0)} of the largest.`
    : `Do not trust this page: on a test input this browser's logits are ${percent(off)} of the largest away from those that Python computed.`;
}
