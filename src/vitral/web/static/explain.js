// The methods in words, and the map that the current choice means.

import { exactPlace, plainPlace, words } from "./places.js";
import { state } from "./state.js";

export const METHODS = {
  attention: ["Attention", "Where the chosen token looks in one block: bright patches get most of its attention. It knows no class."],
  rollout: ["Rollout", "Attention followed through all blocks: bright patches reach the answer most. It knows no class."],
  relevance: ["Relevance", "Attention weighted by its effect on the chosen class: bright patches raised its score."],
  gradcam: ["Grad-CAM", "Features weighted by how much they move the chosen class: bright places speak for it."],
  occlusion: ["Occlusion", "Each place covered in turn: red where the chosen class then loses probability, blue where it gains."],
  similarity: ["Similarity", "What the model holds alike after the chosen block: bright patches resemble the one you point at. It knows no class."],
};

/** Colours span at least so much: times an even share, or as it is. Grad-CAM's numbers mean nothing beyond one model and picture. */
const LEAST = { attention: 3, rollout: 0.5, relevance: 2, gradcam: 0, occlusion: 0.02, similarity: 0.2 };

/** The least span of a map's colours; `count`: the tokens or patches that share what it shows. */
export function leastSpan(method, count) {
  return method === "occlusion" || method === "similarity" ? LEAST[method] : LEAST[method] / count;
}

/** What a reader must know of a map's colours. */
export function scaleText(method) {
  if (method === "gradcam") return "Colours are stretched to this map's own range: compare places, not models.";
  if (method === "occlusion") return "Colours reach at least 2 points of probability either way: smaller effects stay pale.";
  if (method === "similarity") return "Cosine similarity; colours span at least 0.2: patches that are all alike stay dark.";
  const shares = { attention: "3 even shares", rollout: "half an even share", relevance: "2 even shares" }[method];
  return shares ? `Colours span at least ${shares}: a map that is nearly even stays dark.` : "";
}

/** Methods that explain a class, the quickest first. */
export const EXPLAINING = ["relevance", "gradcam", "occlusion"];

/** The method that is shown for a model: the chosen one, or the nearest it allows. */
export function methodFor(model) {
  if (model.methods.includes(state.method)) return state.method;
  return model.methods.includes("gradcam") ? "gradcam" : model.methods[0] ?? null;
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
