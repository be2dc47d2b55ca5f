// The methods in words, and the map that the current choice means.

import { exactPlace, plainPlace, words } from "../core/places.js";
import { state } from "../core/state.js";

export const METHODS = {
  attention: ["Attention", "Where the chosen token looks in one block: bright patches get most of its attention. It is the same for every class."],
  rollout: ["Rollout", "Attention followed through all blocks: bright patches reach the answer most. It is the same for every class."],
  gradient_rollout: ["Gradient rollout", "Rollout in which each weight counts by how much it moves the chosen class: bright patches raised its score."],
  relevance: ["Relevance", "Attention weighted by its effect on the chosen class: bright patches raised its score."],
  gradcam: ["Grad-CAM", "Features weighted by how much they move the chosen class: bright places raised its score."],
  occlusion: ["Occlusion", "Each place is covered in turn: red where the chosen class then loses probability, blue where it gains."],
  similarity: ["Similarity", "Which patches have similar vectors after the chosen block: bright patches resemble the one you point at. It is the same for every class."],
};

/** Colours span at least so much: times an even share, or as it is. Grad-CAM's numbers mean nothing beyond one model and picture. */
const LEAST = { attention: 3, rollout: 0.5, gradient_rollout: 0.5, relevance: 2, gradcam: 0, occlusion: 0.02, similarity: 0.2 };

/** The least span of a map's colours; `count`: the tokens or patches that share what it shows. */
export function leastSpan(method, count) {
  return method === "occlusion" || method === "similarity" ? LEAST[method] : LEAST[method] / count;
}

/** What a reader must know of a map's colours. */
export function scaleText(method) {
  if (method === "gradcam") return "Colours cover the range of this map. Compare places, not models.";
  if (method === "occlusion") return "Colours reach at least ±2 percentage points, so smaller effects stay pale.";
  if (method === "similarity") return "Cosine similarity. Colours span at least 0.2, so a map of equal patches stays dark.";
  const shares = { attention: "3\u00a0×", rollout: "half of", gradient_rollout: "half of", relevance: "2\u00a0×" }[method];
  return shares ? `Colours span at least ${shares} an equal share, so a flat map stays dark.` : "";
}

/** Methods that explain a class, the quickest first. */
export const EXPLAINING = ["gradient_rollout", "relevance", "gradcam", "occlusion"];
const BEST = ["gradient_rollout", "relevance", "gradcam", "rollout", "attention", "occlusion", "similarity"];
const VERDICTS = ["use", "with care", "do not use"];

/** What a model can show of the chosen picture and class: gradient maps of a page that runs its model were made with the page. */
export function methodsOf(model, target = state.target) {
  const carried = state.off.size ? [] : Object.entries(model.carried?.[state.picture] ?? {});
  return [...model.methods, ...carried.filter(([, classes]) => target === null || classes.includes(target)).map(([method]) => method)];
}

/** The method that is shown for a model: the chosen one, or the best by the model's audit; without an audit one that knows the class. */
export function methodFor(model) {
  const allowed = methodsOf(model);
  if (allowed.includes(state.method)) return state.method;
  const rank = (method) => VERDICTS.indexOf(model.verdicts?.[method]?.split(": ")[0] ?? "with care");
  return BEST.filter((method) => allowed.includes(method)).sort((one, other) => rank(one) - rank(other))[0] ?? null;
}

/** Why a method cannot be chosen; empty where it can. */
export function whyNot(model, method) {
  if (methodsOf(model).includes(method)) return "";
  if (model.carried && model.classes) return "Needs gradients, which this page does not compute. It contains these maps only for its own pictures, their three most probable classes and the whole model.";
  return !model.classes && EXPLAINING.includes(method) ? "Needs a class, and this model has no head." : "Needs attention, which this model does not have.";
}

export function blockFor(model) {
  return state.block === null ? model.depth - 1 : Math.min(Math.max(state.block, 0), model.depth - 1);
}

export function headFor(model) {
  return state.head >= model.heads || state.head < -1 ? -1 : state.head;
}

/** The token that asks: the chosen one, or what the model's head reads. */
export function tokenFor(model, trace) {
  const token = state.token ?? model.reads;
  return trace.has(token) ? token : trace.has(model.reads) ? model.reads : -1;
}

export function targetFor(trace) {
  return state.target !== null && state.target >= 0 && state.target < trace.logits.length ? state.target : trace.order[0];
}

export function className(model, index) {
  return model.names[index] ?? `class ${index}`;
}

/** A token in words; `exact`: a patch by row and column, else as the reader wishes. */
export function tokenName(model, token, exact = words.exact) {
  if (token < 0) return "mean of the patches";
  if (token < model.prefix.length) return model.prefix[token];
  const patch = token - model.prefix.length;
  return `patch in ${exact ? exactPlace(patch, model.grid) : plainPlace(patch, model.grid)}`;
}

export function headName(block, head, heads) {
  return `block ${block}, ${head < 0 ? `mean of ${heads} heads` : `head ${head}`}`;
}
