// What is being looked at. The address holds it, so that a link reproduces the view.

const listeners = [];

/** How maps are drawn; not in the address. */
export const display = { opacity: 0.72, smooth: false, lift: true, plain: false };

export const state = {
  picture: null,
  model: 0,
  view: "wall",
  method: null, // null: the best that the model allows
  block: null, // null: the last one
  head: -1, // -1: the mean of all heads
  token: null, // null: what the head reads; -1: the mean of the patches
  target: null, // null: the predicted class
  sort: "depth",
  off: new Set(), // "h3.1" a head, "b5" a block, "p17" a patch
};

const PLACES = ["picture", "model", "view", "method"];
const NUMBERS = ["model", "block", "head", "token", "target"];
const WORDS = ["picture", "view", "method", "sort"];
const CHOICES = {
  view: ["wall", "depth", "similar", "surgery", "model", "compare", "training", "story"],
  method: ["attention", "rollout", "gradient_rollout", "relevance", "gradcam", "occlusion", "similarity"],
  sort: ["depth", "distance", "entropy"],
};
const DEFAULTS = { ...state };

export function subscribe(listener) {
  listeners.push(listener);
}

/** Change the view; listeners hear which fields changed. */
export function update(changes, fromAddress = false) {
  const same = (name) => (name === "off" ? partsOf(changes.off) === partsOf(state.off) : changes[name] === state[name]);
  const changed = new Set(Object.keys(changes).filter((name) => !same(name)));
  if (!changed.size) return;
  Object.assign(state, changes);
  // Another picture, model or view is a place to come back to; how one looks at it is not.
  if (!fromAddress && location.protocol !== "about:") history[PLACES.some((name) => changed.has(name)) ? "pushState" : "replaceState"](null, "", toHash());
  for (const listener of listeners) listener(changed);
}

/** What is switched off, in one word that is the same for the same parts. */
export function partsOf(off) {
  return [...off].sort().join(",");
}

function toHash() {
  const parts = [];
  for (const name of [...WORDS, ...NUMBERS]) {
    if (state[name] !== null && (name === "picture" || state[name] !== DEFAULTS[name])) parts.push(`${name}=${encodeURIComponent(state[name])}`);
  }
  if (state.off.size) parts.push(`off=${partsOf(state.off)}`);
  return `#${parts.join("&")}`;
}

/** The view that an address describes; what it does not name is the default, what makes no sense is left out. */
export function fromHash(hash) {
  const found = new URLSearchParams(hash.replace(/^#/, ""));
  const view = { ...DEFAULTS, off: new Set() };
  for (const name of NUMBERS) {
    if (found.has(name) && /^-?\d{1,6}$/.test(found.get(name))) view[name] = Number(found.get(name));
  }
  for (const name of WORDS) {
    const value = found.get(name);
    if (value !== null && (name === "picture" ? /^[0-9a-f]{16}$/.test(value) : CHOICES[name].includes(value))) view[name] = value;
  }
  // A block, a head or a token is chosen to see its attention.
  if (!view.method && !["depth", "story"].includes(view.view) && ["block", "head", "token"].some((name) => view[name] !== DEFAULTS[name])) view.method = "attention";
  for (const part of (found.get("off") ?? "").split(",")) {
    if (/^(h\d{1,4}\.\d{1,4}|b\d{1,4}|p\d{1,6})$/.test(part)) view.off.add(part);
  }
  return view;
}
