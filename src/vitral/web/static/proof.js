// A page that runs its model says so, and whether it computes what Python computed.

import { byId, percent } from "./dom.js";

const TOLERANCE = 1e-3;

/** Run each model on its test input and say how far the answer is from Python's. */
export async function showProof(source) {
  const line = byId("runs");
  const said = "This file holds the model (8-bit weights) and runs it here: drop any picture, nothing leaves this computer.";
  line.hidden = false;
  line.textContent = said;
  const off = await source.check();
  const right = off <= TOLERANCE;
  line.classList.toggle("strong-notice", !right);
  line.textContent = right
    ? `${said} Checked on a test input: the logits are those of Python, to ${off.toExponential(0)}.`
    : `Do not trust this page: on a test input this browser's logits are ${percent(off)} of the largest away from those that Python computed.`;
}
