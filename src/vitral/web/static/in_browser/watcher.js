// Attention as it passes: what the explorer's server packs, made in the browser.

import { roundHalfEven } from "./preprocess.js";

const LEVELS = 255;

/** Reads the attention of a pass, head by head: codes for the page, what each head is like, and what rollout needs. */
export class Watcher {
  constructor(config, most, arena) {
    Object.assign(this, { config, arena, next: 0 });
    const { tokens, depth, heads, prefix } = config;
    this.whole = depth * heads * tokens * tokens <= most;
    this.rows = [...Array(this.whole ? tokens : prefix).keys(), -1];
    this.codes = new Uint8Array(depth * heads * this.rows.length * tokens);
    this.argmax = new Uint16Array(depth * (heads + 1) * this.rows.length * 4);
    this.means = []; // of a block's heads: (T, T)
    this.measures = { distance: [], entropy: [] };
    this.error = { worst: 0, moved: 0, rows: 0 };
    this.between = patchDistances(config);
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
    this.measures.distance[block].push(Number((far / (tokens - prefix)).toFixed(4)));
    this.measures.entropy[block].push(Number((entropy / tokens).toFixed(4)));
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
    error.total_variation += moved / 2;
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
    this.argmax.set([token, share(row[token]), patch, share(row[patch])], (place * this.rows.length + index) * 4);
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
      error: { worst: error.worst, total_variation: error.total_variation / error.rows },
      measures: this.measures,
      reference: { entropy: Math.log2(config.tokens) },
    };
    return { header, sections: { attention: this.codes, argmax: this.argmax } };
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

/** (N, N): how far apart the centres of patches are, in pixels of the model's picture. */
export function patchDistances({ grid: [rows, columns], image_size: [height, width] }) {
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
