// A page that holds the model runs it here: what the explorer's server computes, computed by the browser.

import { Engine } from "./engine.js";
import { decode, preprocess, roundHalfEven, seenBox } from "./preprocess.js";
import { Trace, unpack } from "./trace.js";

const LEVELS = 255;
const SHOWN_SIDE = 560;
const LISTED = 5;
const KEPT = 6; // decoded pictures

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

  async logits(picture) {
    await this.ready;
    return this.engine.run(this.image(picture));
  }

  /** One forward pass as the page shows it, with the rollout beside it. */
  async trace(picture, off) {
    await this.ready;
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
  shown({ bitmap, width, height }) {
    const [left, top, right, bottom] = seenBox(this.header.preprocess, width, height).map(roundHalfEven);
    const [across, down] = [Math.max(1, right - left), Math.max(1, bottom - top)];
    const scale = Math.min(1, SHOWN_SIDE / Math.max(across, down));
    const size = { resizeWidth: Math.max(1, Math.round(across * scale)), resizeHeight: Math.max(1, Math.round(down * scale)), resizeQuality: "high" };
    return createImageBitmap(bitmap, left, top, across, down, scale < 1 ? size : {});
  }

  /** What switching off changes: probabilities before and after, and the difference of the rollouts. */
  surgery(before, after, target) {
    const most = (trace) => trace.order.slice(0, LISTED);
    const chosen = [...new Set([...most(before), ...most(after), ...(target === null ? [] : [target])])];
    return {
      method: "rollout",
      rows: chosen.map((index) => [index, before.probabilities[index], after.probabilities[index]]),
      top: [before.order[0], after.order[0]],
      difference: toRows(after.rollout.map((value, index) => value - before.rollout[index]), before.grid),
    };
  }

  rolloutMap(trace) {
    return { method: "rollout", grid: toRows(trace.rollout, trace.grid), target: null, note: this.header.rollout.note, unit: "share of the answer", signed: false };
  }
}

/** Reads the attention of a pass, head by head: codes for the page, what each head is like, and what rollout needs. */
class Watcher {
  constructor(config, most, arena) {
    Object.assign(this, { config, arena, next: 0 });
    const { tokens, depth, heads, prefix } = config;
    this.whole = depth * heads * tokens * tokens <= most;
    this.rows = [...Array(this.whole ? tokens : prefix).keys(), -1];
    this.codes = new Uint8Array(depth * heads * this.rows.length * tokens);
    this.most = new Uint16Array(depth * (heads + 1) * this.rows.length * 4);
    this.means = []; // of a block's heads: (T, T)
    this.measures = { distance: [], entropy: [] };
    this.error = { worst: 0, moved: 0, rows: 0 };
    this.between = distances(config);
  }

  record(name, sheet, head) {
    if (!name.endsWith(".attention.weights")) return;
    const { config, arena, rows } = this;
    const { tokens, prefix, heads } = config;
    const block = Number(name.split(".")[1]);
    if (head === 0) {
      this.means.push(new Float32Array(tokens * tokens));
      this.patchMeans = new Float64Array(tokens); // of the heads so far
      for (const list of Object.values(this.measures)) list.push([]);
    }
    const mean = this.means[block];
    const patchMean = new Float32Array(tokens);
    let [far, entropy] = [0, 0];
    for (let token = 0; token < tokens; token++) {
      const row = arena.row(sheet, token);
      for (let other = 0; other < tokens; other++) mean[token * tokens + other] += row[other] / heads;
      for (let other = 0; other < tokens; other++) if (row[other] > 0) entropy -= row[other] * Math.log2(row[other]);
      if (token < prefix) continue;
      let [moved, sum] = [0, 0];
      const start = (token - prefix) * (tokens - prefix) - prefix;
      for (let other = prefix; other < tokens; other++) {
        moved += row[other] * this.between[start + other];
        sum += row[other];
      }
      far += moved / Math.max(sum, 1e-30);
      for (let other = 0; other < tokens; other++) patchMean[other] += row[other] / (tokens - prefix);
    }
    this.measures.distance[block].push(round(far / (tokens - prefix), 4));
    this.measures.entropy[block].push(round(entropy / tokens, 4));
    for (let other = 0; other < tokens; other++) this.patchMeans[other] += patchMean[other] / heads;
    rows.forEach((token, index) => this.encode(token < 0 ? patchMean : arena.row(sheet, token), block * (heads + 1) + head, index));
    if (head < heads - 1) return;
    const ofHeads = (token) => (token < 0 ? this.patchMeans : mean.subarray(token * tokens, (token + 1) * tokens));
    rows.forEach((token, index) => this.note(ofHeads(token), block * (heads + 1) + heads, index));
  }

  /** A row as codes (see vitral.web.pack), with how far they are off. */
  encode(row, place, index) {
    const { codes, error } = this;
    const [token] = this.note(row, place, index);
    const top = Math.max(row[token], 1.1754943508222875e-38);
    const begin = this.next;
    let sum = 0;
    for (let other = 0; other < row.length; other++) {
      const code = roundHalfEven(LEVELS * Math.sqrt(row[other] / top));
      codes[this.next++] = code;
      sum += (code / LEVELS) ** 2;
    }
    let moved = 0;
    for (let other = 0; other < row.length; other++) {
      const off = Math.abs((codes[begin + other] / LEVELS) ** 2 / Math.max(sum, 1e-38) - row[other]);
      error.worst = Math.max(error.worst, off / top);
      moved += off;
    }
    error.moved += moved / 2;
    error.rows++;
  }

  /** The token and the patch that get most, each with its share. */
  note(row, place, index) {
    const { prefix } = this.config;
    let [token, patch] = [0, prefix];
    for (let other = 1; other < row.length; other++) {
      if (row[other] > row[token]) token = other;
      if (other > prefix && row[other] > row[patch]) patch = other;
    }
    const share = (value) => Math.round(Math.min(Math.max(value, 0), 1) * 65535);
    this.most.set([token, share(row[token]), patch, share(row[patch])], (place * this.rows.length + index) * 4);
    return [token, patch];
  }

  finish() {
    const { config, rows, error } = this;
    const header = {
      grid: config.grid,
      prefix: config.prefix,
      tokens: config.tokens,
      rows,
      whole: this.whole,
      levels: LEVELS,
      error: { worst: error.worst, moved: error.moved / error.rows },
      measures: this.measures,
      reference: { entropy: Math.log2(config.tokens) },
    };
    return { header, sections: { attention: this.codes, most: this.most } };
  }

  /** Row of Â(L) … Â(1), where Â is the mean of the heads with the residual path: what reaches the token that is read. */
  rollout(reads) {
    const { tokens, prefix } = this.config;
    let row = new Float64Array(tokens);
    if (reads >= 0) row[reads] = 1;
    else row.fill(1 / (tokens - prefix), prefix);
    for (const mean of [...this.means].reverse()) {
      const next = new Float64Array(tokens);
      for (let token = 0; token < tokens; token++) {
        if (row[token] === 0) continue;
        let sum = 1;
        for (let other = 0; other < tokens; other++) sum += mean[token * tokens + other];
        const share = row[token] / sum;
        for (let other = 0; other < tokens; other++) next[other] += share * mean[token * tokens + other];
        next[token] += share;
      }
      row = next;
    }
    return row.subarray(prefix);
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
      const { width, height } = await this.get(key);
      return { picture: key, name: name.replace(/[\p{C}]/gu, "").slice(0, 80) || "picture", width, height };
    } catch (error) {
      if (!known) this.blobs.delete(key);
      throw error;
    }
  }

  async get(key) {
    if (!this.blobs.has(key)) throw Object.assign(new Error("this picture is not on the page"), { hint: "drop it again", status: 404 });
    if (!this.decoded.has(key)) {
      this.decoded.set(key, decodeWithin(this.blobs.get(key), this.limits));
      if (this.decoded.size > KEPT) this.decoded.delete(this.decoded.keys().next().value);
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

function squareOf({ grid: [rows, columns], image_size: [height, width] }, patch) {
  const edge = (index, pixels, count) => roundHalfEven((index * pixels) / count);
  const [row, column] = [Math.floor(patch / columns), patch % columns];
  return [edge(row, height, rows), edge(row + 1, height, rows), edge(column, width, columns), edge(column + 1, width, columns)];
}

/** (N, N): how far apart the centres of patches are, in pixels of the model's picture. */
function distances({ grid: [rows, columns], image_size: [height, width] }) {
  const count = rows * columns;
  const out = new Float64Array(count * count);
  for (let patch = 0; patch < count; patch++) {
    for (let other = 0; other < count; other++) {
      const down = ((Math.floor(patch / columns) - Math.floor(other / columns)) * height) / rows;
      out[patch * count + other] = Math.hypot(down, (((patch % columns) - (other % columns)) * width) / columns);
    }
  }
  return out;
}

function toRows(values, [rows, columns]) {
  return Array.from({ length: rows }, (_, row) => Array.from(values.slice(row * columns, (row + 1) * columns)));
}

function round(value, digits) {
  return Number(value.toFixed(digits));
}
