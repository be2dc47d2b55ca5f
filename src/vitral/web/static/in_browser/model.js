// A page that holds the model runs it here: what the explorer's server computes, computed by the browser.

import { Trace, probabilitiesOf, unpack } from "../core/trace.js";
import { depthOf, featuresOf } from "./depth.js";
import { Engine } from "./engine.js";
import { LongWork, importanceOf, importancePasses, occlusionOf, squaresOf } from "./parts.js";
import { decode, preprocess, roundHalfEven, seenBox } from "./preprocess.js";
import { storyOf } from "./story.js";
import { Watcher } from "./watcher.js";
import { StoryData } from "../story/data.js";

const SHOWN_SIDE = 896;
const BESIDE = 320;
const THUMB = 48;
const DECODED = 6; // decoded pictures

/** One model: `bytes` as vitral.web.live packed it; `kernel`: a promise of its fast product; `facts`: what the session says of it. */
export class LiveModel {
  constructor(bytes, kernel, facts) {
    this.facts = facts;
    this.ready = unpack(bytes).then(async ({ header, sections }) => {
      this.header = header;
      this.engine = await Engine.open(header, sections, await kernel);
    });
  }

  /** How far the logits of a fixed input lie from those that Python computed when the page was made, relative to the largest. */
  async check() {
    await this.ready;
    const { logits } = this.header.proof;
    const found = await this.engine.run(probe(this.header.config));
    const most = Math.max(...logits.map(Math.abs), 1e-30);
    return Math.max(...logits.map((value, index) => Math.abs(value - found[index]))) / most;
  }

  /** A decoded picture as the model takes it, without some of its patches. */
  image(picture, off = new Set()) {
    const { config, preprocess: wants } = this.header;
    const image = preprocess(wants, picture);
    for (const part of off) if (part[0] === "p") cover(image, config, ...squareOf(config, Number(part.slice(1))));
    return image;
  }

  /** An answer of the table; `long`: its signal, the trace of the picture, and `started(work)`, which hears how far it is. */
  async answer(picture, question, long) {
    await this.ready;
    return this[question.what](picture, question, long);
  }

  async logits(picture) {
    await this.ready;
    return this.engine.run(this.image(picture));
  }

  /** One forward pass as the page shows it, with the rollout beside it. */
  async trace(picture, { off }) {
    const { config } = this.header;
    const watcher = new Watcher(config, this.header.attention, this.engine.arena);
    const output = await this.engine.run(this.image(picture, off), { off, record: (name, sheet, head) => watcher.record(name, sheet, head) });
    if (!output.every(Number.isFinite)) throw Object.assign(new Error("the model's output for this picture is not finite"), { hint: "are its weights damaged?", status: 422 });
    const { header, sections } = watcher.finish();
    sections.logits = config.classes ? output : new Float32Array(0);
    const trace = new Trace(header, sections, await this.shown(picture), this.facts);
    return Object.assign(trace, { rollout: watcher.rollout(this.header.rollout.token) });
  }

  /** The part of the picture that the model sees, as large as it is shown. */
  shown({ bitmap, width, height }, side = SHOWN_SIDE) {
    const [left, top, right, bottom] = seenBox(this.header.preprocess, width, height).map(roundHalfEven);
    const [across, down] = [Math.max(1, right - left), Math.max(1, bottom - top)];
    const scale = Math.min(1, side / Math.max(across, down));
    const size = { resizeWidth: Math.max(1, Math.round(across * scale)), resizeHeight: Math.max(1, Math.round(down * scale)), resizeQuality: "high" };
    return createImageBitmap(bitmap, left, top, across, down, scale < 1 ? size : {});
  }

  /** The probability (of a model with one output: the output) that a change is measured by. */
  score(target) {
    const single = this.header.config.classes === 1 && !this.facts.thresholds.length;
    return (logits) => (single ? logits[0] : probabilitiesOf(logits, this.facts)[target]);
  }

  get unit() {
    return this.header.config.classes === 1 && !this.facts.thresholds.length ? "output" : "probability";
  }

  map(picture, question, long) {
    if (question.method === "occlusion") return this.occlusion(picture, question, long);
    const { rollout, grid } = long.trace;
    return { method: "rollout", grid, values: rollout, target: null, note: this.header.rollout.note, unit: "share of the answer", signed: false };
  }

  /** Occlusion of the target, or of what the trace answers. */
  async occlusion(picture, { target, off }, { trace, signal, started }) {
    const { config } = this.header;
    target ??= trace.order[0];
    const image = this.image(picture, off);
    const score = this.score(target);
    const work = started(new LongWork("Covering the picture", squaresOf(config).places.length, signal));
    const covered = (square) => {
      const copy = image.slice();
      if (square) cover(copy, config, ...edgesOf(config, ...square));
      return copy;
    };
    const found = await occlusionOf({ config, covered, work, score: async (copy) => score(await this.engine.run(copy, { off })) });
    const note = `${this.unit} ${found.whole.toFixed(3)} uncovered; squares of ${found.size} × ${found.size} patches${found.between ? "; every second one, the others between them" : ""}`;
    return { method: "occlusion", grid: config.grid, values: found.grid, target, note, unit: `fall of the ${this.unit}`, signed: true };
  }

  async importance(picture, { target }, { trace, signal, started }) {
    const { config } = this.header;
    target ??= trace.order[0];
    const image = this.image(picture);
    const score = this.score(target);
    const work = started(new LongWork("Switching off heads and blocks", importancePasses(config), signal));
    const found = await importanceOf({ config, work, score: async (off) => score(await this.engine.run(image, { off })) });
    return { ...found, target, unit: this.unit };
  }

  /** The patches' tokens at every depth, and the picture small. */
  async features(picture, { off }) {
    const { header, sections } = await featuresOf(this.engine, this.image(picture, off), off);
    const blob = await this.small(picture);
    return { header: { ...header, kind: blob.type }, sections: { ...sections, picture: new Uint8Array(await blob.arrayBuffer()) } };
  }

  depth(picture, { off, target }) {
    return depthOf(this.engine, this.image(picture, off), off, target, (logits) => probabilitiesOf(logits, this.facts));
  }

  async story(picture) {
    const { config, order } = this.header;
    const covered = (image, patches) => {
      const copy = image.slice();
      for (const patch of patches) cover(copy, config, ...squareOf(config, patch));
      return copy;
    };
    const { header, sections } = await storyOf(this.engine, { image: this.image(picture), order, covered, shares: (logits) => probabilitiesOf(logits, this.facts) });
    return new StoryData(header, sections);
  }

  async small(picture) {
    const shown = await this.shown(picture, BESIDE);
    const canvas = Object.assign(document.createElement("canvas"), { width: shown.width, height: shown.height });
    canvas.getContext("2d").drawImage(shown, 0, 0);
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  }
}

/** Pictures by their key, the last few decoded. */
export class LivePictures {
  constructor(limits) {
    Object.assign(this, { limits, blobs: new Map(), decoded: new Map() });
  }

  async add(blob, name) {
    const bytes = await blob.arrayBuffer();
    const key = await keyOf(bytes);
    const known = this.blobs.has(key);
    this.blobs.set(key, blob);
    try {
      const { bitmap, width, height } = await this.get(key);
      return { picture: key, name: name.replace(/[\p{C}]/gu, "").slice(0, 80) || "picture", width, height, thumb: thumbOf(bitmap) };
    } catch (error) {
      if (!known) this.blobs.delete(key);
      throw error;
    }
  }

  async get(key) {
    if (!this.blobs.has(key)) throw Object.assign(new Error("this picture is not on the page"), { hint: "drop it again", status: 404 });
    if (!this.decoded.has(key)) {
      this.decoded.set(key, decodeWithin(this.blobs.get(key), this.limits));
      if (this.decoded.size > DECODED) this.decoded.delete(this.decoded.keys().next().value);
    }
    try {
      return await this.decoded.get(key);
    } catch (error) {
      this.decoded.delete(key);
      throw error;
    }
  }
}

export async function decodeWithin(blob, limits) {
  const refuse = (text, hint) => Object.assign(new Error(text), { hint, status: 422 });
  if (blob.size > limits.upload) throw refuse("this picture is too large", `at most ${Math.round(limits.upload / 2 ** 20)} MiB`);
  let picture;
  try {
    picture = await decode(blob);
  } catch {
    throw refuse("this is not a picture that the browser can read", "save it again as PNG or JPEG");
  }
  if (picture.width * picture.height > limits.pixels) throw refuse(`the picture has ${Math.round((picture.width * picture.height) / 1e6)} million pixels`, `shrink it below ${Math.round(limits.pixels / 1e6)} million`);
  return picture;
}

/** The middle square of a picture, small, as an address. */
function thumbOf(bitmap) {
  const canvas = Object.assign(document.createElement("canvas"), { width: THUMB, height: THUMB });
  const side = Math.min(bitmap.width, bitmap.height);
  canvas.getContext("2d").drawImage(bitmap, (bitmap.width - side) / 2, (bitmap.height - side) / 2, side, side, 0, 0, THUMB, THUMB);
  return canvas.toDataURL("image/jpeg");
}

/** The same name that the explorer gives a picture: the beginning of its SHA-256. */
async function keyOf(bytes) {
  const digest = crypto.subtle ? new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)) : crypto.getRandomValues(new Uint8Array(8));
  return [...digest.slice(0, 8)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The input of the proof: waves, the same here and in vitral.web.live. */
function probe({ channels, image_size: [height, width] }) {
  return Float32Array.from({ length: channels * height * width }, (_, index) => Math.sin(index * 0.37) + Math.sin(index * 0.011));
}

/** Set a rectangle of an image (channels, height, width) to the mean colour. */
function cover(image, { channels, image_size: [height, width] }, top, bottom, left, right) {
  for (let row = 0; row < channels * height; row++) {
    if (row % height >= top && row % height < bottom) image.fill(0, row * width + left, row * width + right);
  }
}

/** Pixels of a rectangle of patches: from row to row, from column to column. */
function edgesOf({ grid, image_size: [height, width] }, top, bottom, left, right) {
  const edge = (index, pixels, count) => roundHalfEven((index * pixels) / count);
  return [edge(top, height, grid[0]), edge(bottom, height, grid[0]), edge(left, width, grid[1]), edge(right, width, grid[1])];
}

function squareOf(config, patch) {
  const [row, column] = [Math.floor(patch / config.grid[1]), patch % config.grid[1]];
  return edgesOf(config, row, row + 1, column, column + 1);
}
