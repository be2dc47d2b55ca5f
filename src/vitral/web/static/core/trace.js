// One forward pass, unpacked: the picture as the model saw it, its logits, and every attention map.

const PARKED = 5;
const ASKING = 256; // of more tokens, so many are asked

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Header and sections of what vitral.web.pack wrote. */
export async function unpack(bytes) {
  const raw = await inflate(bytes);
  const length = new DataView(raw.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(raw.subarray(4, 4 + length)));
  const sections = {};
  for (const { name, type, offset, bytes: size } of header.sections) {
    const start = 4 + length + offset;
    const Numbers = { float32: Float32Array, uint16: Uint16Array, int8: Int8Array }[type];
    sections[name] = Numbers ? new Numbers(raw.buffer, start, size / Numbers.BYTES_PER_ELEMENT) : raw.subarray(start, start + size);
  }
  return { header, sections };
}

export class Trace {
  constructor(header, sections, image, model) {
    Object.assign(this, { header, image, model });
    this.codes = sections.attention ?? null;
    this.maxima = sections.argmax ?? null;
    this.logits = sections.logits;
    this.probabilities = probabilitiesOf(this.logits, model);
    this.grid = header.grid;
    this.prefix = header.prefix;
    this.tokens = header.tokens;
    this.rows = new Map(header.rows.map((token, index) => [token, index]));
    // A code stands for a square, scaled so that the row sums to 1.
    this.squares = Float32Array.from({ length: 256 }, (_, code) => (code / header.levels) ** 2);
    this.order = ranking(this.probabilities);
  }

  static async open({ header, sections }, model) {
    const image = await createImageBitmap(new Blob([sections.picture], { type: header.kind }));
    return new Trace(header, sections, image, model);
  }

  /** The same pass with another answer: some classes, the most probable among them, and their probabilities. */
  answering(classes, shares) {
    const probabilities = new Float32Array(this.probabilities.length);
    classes.forEach((index, at) => (probabilities[index] = shares[at]));
    return Object.assign(Object.create(this), { probabilities, order: ranking(probabilities) });
  }

  has(token) {
    return this.codes !== null && this.rows.has(token);
  }

  /** Adds a token's row of attention to `out`, scaled by `share`. */
  addRow(block, head, token, out, share) {
    const { tokens, squares, codes } = this;
    const start = ((block * this.model.heads + head) * this.rows.size + this.rows.get(token)) * tokens;
    let sum = 0;
    for (let index = 0; index < tokens; index++) sum += squares[codes[start + index]];
    const scale = sum > 0 ? share / sum : 0;
    for (let index = 0; index < tokens; index++) out[index] += squares[codes[start + index]] * scale;
  }

  /** Where a token looks: one head, or the mean of all (head -1). */
  row(block, head, token) {
    const out = new Float32Array(this.tokens);
    if (head >= 0) this.addRow(block, head, token, out, 1);
    else for (let each = 0; each < this.model.heads; each++) this.addRow(block, each, token, out, 1 / this.model.heads);
    return out;
  }

  /** The token and the patch that get most of a token's attention, each with its share; as the model had them, before packing. */
  most(block, head, token) {
    const { heads } = this.model;
    const start = ((block * (heads + 1) + (head < 0 ? heads : head)) * this.rows.size + this.rows.get(token)) * 4;
    const [first, share, patch, patchShare] = this.maxima.subarray(start, start + 4);
    return { token: first, share: share / 65535, patch, patchShare: patchShare / 65535 };
  }

  patches(row) {
    return row.subarray(this.prefix);
  }

  /** Attention sinks of a block: patches to which at least half of all tokens give `PARKED` equal shares or more, as vitral.web.story has it. */
  sinks(block) {
    if (!this.codes || !this.header.whole) return [];
    this.found ??= [];
    if (this.found[block]) return this.found[block];
    const counts = new Float32Array(this.tokens);
    const step = Math.ceil(this.tokens / ASKING);
    for (let token = 0; token < this.tokens; token += step) this.row(block, -1, token).forEach((share, to) => (counts[to] += share * this.tokens >= PARKED ? step : 0));
    return (this.found[block] = [...this.patches(counts).keys()].filter((patch) => counts[this.prefix + patch] >= this.tokens / 2));
  }
}

/** The indices of the values, the largest value first. */
export function ranking(values) {
  return [...values.keys()].sort((a, b) => values[b] - values[a]);
}

/** Of several labels each on its own; of one output the number itself. */
export function probabilitiesOf(logits, model) {
  return model?.thresholds?.length ? logits.map(sigmoid) : softmax(logits);
}

function sigmoid(logit) {
  return 1 / (1 + Math.exp(-logit));
}

function softmax(logits) {
  if (logits.length < 2) return Float32Array.from(logits);
  let top = -Infinity;
  for (const value of logits) if (value > top) top = value;
  const powers = Float32Array.from(logits, (value) => Math.exp(value - top));
  let sum = 0;
  for (const value of powers) sum += value;
  return powers.map((value) => value / sum);
}
