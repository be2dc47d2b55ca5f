// The Vision Transformer in the browser: patches → tokens → positions → blocks → norm → pool → head, as vitral.model has it.
//
// Weights are eight-bit numbers with one scale an output (vitral.web.live), made into floats when the page opens; everything else
// is in single precision. `record(name, sheet, head)` is told what passes, under the names that a tape has in Python.

import { Arena } from "./matrix.js";

const yieldToPage = () =>
  new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });

export class Engine {
  /** `header` and `sections` as vitral.web.live packed them; `kernel`: the bytes of the product in WebAssembly. */
  static async open(header, sections, kernel) {
    const engine = new Engine(header, sections);
    await engine.arena.open(kernel);
    engine.fill();
    return engine;
  }

  constructor({ config, neighbours }, sections) {
    Object.assign(this, { config, neighbours, parts: sections, arena: new Arena(), layers: new Map(), last: Promise.resolve() });
    const { grid, width, heads, mlp_width: hidden, tokens, prefix } = config;
    this.headWidth = width / heads;
    for (const name of Object.keys(sections)) {
      if (name.endsWith(".scale")) this.layers.set(name.slice(0, -6), this.room(name.slice(0, -6)));
    }
    const { arena } = this;
    const [patches, patchWidth] = [grid[0] * grid[1], sections["patches.projection.weight"].length / width];
    const most = Math.max(hidden * (config.activation === "swiglu" ? 2 : 1), config.pool_mlp_width * 2, config.head_hidden);
    this.sheets = {
      cut: arena.sheet(patches, patchWidth),
      patches: arena.sheet(patches, width),
      tokens: arena.sheet(tokens, width),
      seen: arena.sheet(tokens, width),
      joined: arena.sheet(tokens, width),
      output: arena.sheet(tokens, width),
      qkv: arena.sheet(tokens, 3 * width),
      weights: arena.sheet(tokens, tokens),
      mixed: arena.sheet(tokens, this.headWidth),
      hidden: arena.sheet(tokens, most),
      pooled: arena.sheet(1, width * 2),
      one: arena.sheet(1, width),
      logits: arena.sheet(patches, Math.max(config.classes, 1)),
    };
    this.keys = arena.panels(this.headWidth, tokens);
    this.values = arena.panels(tokens, this.headWidth);
    this.prefix = prefix;
  }

  room(name) {
    const columns = this.parts[`${name}.scale`].length;
    return this.arena.panels(this.parts[`${name}.weight`].length / columns, columns);
  }

  /** Eight-bit weights times their scales, in panels. */
  fill() {
    for (const [name, panels] of this.layers) {
      const { [`${name}.weight`]: codes, [`${name}.scale`]: scales, [`${name}.bias`]: bias } = this.parts;
      const inner = codes.length / scales.length;
      this.arena.fill(panels, inner, scales.length, (row, column) => codes[column * inner + row] * scales[column]);
      if (bias) this.arena.numbers.set(bias, panels.bias);
      delete this.parts[`${name}.weight`]; // the floats are there now
    }
  }

  /** An image (channels × height × width) → logits. `off`: parts such as h3.1, b5; `order`: which patch stands at each place. */
  run(image, options = {}) {
    return this.alone(() => this.forward(image, options));
  }

  /** One work after another, because all share one memory. */
  alone(work) {
    const answer = this.last.then(work);
    this.last = answer.catch(() => {});
    return answer;
  }

  async forward(image, { off = new Set(), record = () => {}, order = null } = {}) {
    this.embed(image, record, order);
    for (let block = 0; block < this.config.depth; block++) {
      await yieldToPage(); // the page stays alive between blocks
      this.block(block, off, record);
    }
    return this.answer(record);
  }

  /** Tokens after a block → logits, by the last norm, what the head reads, and the head. */
  answer(record = () => {}) {
    const { sheets, config } = this;
    if (config.final_norm) this.norm("norm", sheets.tokens, sheets.tokens);
    record("tokens", sheets.tokens);
    const pooled = this.read();
    if (config.pool_norm) this.norm("pool_norm", pooled, pooled);
    record("pooled", pooled);
    const logits = this.head("head", pooled);
    if (!config.distillation_token || !config.classes) return logits;
    const second = sheets.one;
    this.arena.row(second, 0).set(this.arena.row(sheets.tokens, 1));
    return this.head("distillation_head", second).map((value, index) => (value + logits[index]) / 2);
  }

  /** What the head says of each patch of the tokens, as if it stood wherever the head reads: (N, K). */
  readPatches() {
    const { arena, sheets, config, prefix } = this;
    const { width } = config;
    const rows = sheets.patches.rows;
    const tokens = { ...sheets.tokens, at: sheets.tokens.at + prefix * sheets.tokens.stride, rows };
    const seen = { ...sheets.seen, rows };
    if (config.final_norm) this.norm("norm", tokens, seen);
    else for (let patch = 0; patch < rows; patch++) arena.row(seen, patch).set(arena.row(tokens, patch));
    let pooled = seen;
    if (config.pool === "class+mean") {
      pooled = { ...sheets.qkv, rows, width: 2 * width };
      for (let patch = 0; patch < rows; patch++) for (const from of [0, width]) arena.row(columnsOf(pooled, from, width), patch).set(arena.row(seen, patch));
    } else if (config.pool === "attention" || config.pool === "map") {
      const both = this.linear("pool.key_value", seen, { ...sheets.qkv, rows, width: 2 * width });
      pooled = this.linear("pool.projection", columnsOf(both, width, width), { ...sheets.output, rows }); // all tokens are alike: so is what is seen
      if (config.pool === "map") {
        const added = this.mlp("pool.mlp", this.norm("pool.norm", pooled, { ...sheets.joined, rows }), { ...sheets.patches, rows }, false);
        for (let patch = 0; patch < rows; patch++) addTo(arena.row(pooled, patch), arena.row(added, patch));
      }
    }
    if (config.pool_norm) pooled = this.norm("pool_norm", pooled, { ...sheets.joined, rows });
    const logits = this.headRows("head", pooled);
    if (!config.distillation_token) return logits;
    const second = this.headRows("distillation_head", seen);
    return logits.map((row, patch) => row.map((value, index) => (value + second[patch][index]) / 2));
  }

  embed(image, record, order) {
    const { arena, sheets, config, parts, prefix } = this;
    this.cut(image);
    this.linear("patches.projection", sheets.cut, sheets.patches);
    if (config.patch_norm) this.norm("patch_norm", sheets.patches, sheets.patches);
    record("patches", sheets.patches);
    for (let token = 0; token < sheets.tokens.rows; token++) {
      const row = arena.row(sheets.tokens, token);
      row.set(parts.start.subarray(token * config.width, (token + 1) * config.width)); // learned tokens and positions
      if (token >= prefix) addTo(row, arena.row(sheets.patches, order ? order[token - prefix] : token - prefix));
    }
    if (config.embedding_norm) this.norm("embedding_norm", sheets.tokens, sheets.tokens);
    record("embedding", sheets.tokens);
  }

  /** Patches row by row, each flattened; overlapping ones reach into zeros around the image. */
  cut(image) {
    const { arena, sheets, config } = this;
    const [height, width] = config.image_size;
    const [rows, columns] = config.patch_size;
    const [down, across] = config.stride ?? config.patch_size;
    const [top, left] = [Math.floor((rows - down) / 2), Math.floor((columns - across) / 2)];
    for (let patch = 0; patch < sheets.cut.rows; patch++) {
      const out = arena.row(sheets.cut, patch);
      const y0 = Math.floor(patch / config.grid[1]) * down - top;
      const x0 = (patch % config.grid[1]) * across - left;
      let at = 0;
      for (let channel = 0; channel < config.channels; channel++) {
        for (let y = y0; y < y0 + rows; y++) {
          for (let x = x0; x < x0 + columns; x++) {
            out[at++] = y >= 0 && y < height && x >= 0 && x < width ? image[(channel * height + y) * width + x] : 0;
          }
        }
      }
    }
  }

  block(index, off, record) {
    const { sheets, config } = this;
    const name = `blocks.${index}`;
    const gone = (part) => off.has(`b${index}`) || off.has(`${part}${index}`); // b5: the block, a5: its attention, m5: its MLP
    const { tokens, seen } = sheets;
    const parallel = config.block === "parallel";
    const first = config.norm_order === "pre" ? this.norm(`${name}.norm1`, tokens, seen) : tokens;
    const attended = this.attention(index, first, off, record);
    if (gone("a")) this.clear(attended);
    this.add(tokens, attended, `${name}.norm1`, `${name}.scale1`);
    record(`${name}.middle`, tokens);
    const second = parallel ? first : config.norm_order === "pre" ? this.norm(`${name}.norm2`, tokens, seen) : tokens;
    const added = this.mlp(`${name}.mlp`, second, sheets.output, config.sub_norm !== "none");
    if (gone("m")) this.clear(added);
    this.add(tokens, added, `${name}.norm2`, parallel ? `${name}.scale1` : `${name}.scale2`);
    record(`${name}.output`, tokens);
  }

  /** What a branch gives, added to the stream; normalised before or after where the block does that. */
  add(tokens, update, norm, scale) {
    const { arena, config, parts } = this;
    if (config.norm_order === "res-post") this.norm(norm, update, update);
    const factors = parts[scale];
    for (let token = 0; token < tokens.rows; token++) {
      const [row, more] = [arena.row(tokens, token), arena.row(update, token)];
      if (factors) for (let index = 0; index < row.length; index++) row[index] += more[index] * factors[index];
      else addTo(row, more);
    }
    if (config.norm_order === "post") this.norm(norm, tokens, tokens);
  }

  attention(index, seen, off, record) {
    const { arena, sheets, config, headWidth, keys, values } = this;
    const { numbers } = arena;
    const { qkv, weights, mixed, joined, output } = sheets;
    const { width, tokens } = config;
    const name = `blocks.${index}.attention`;
    this.linear(`${name}.qkv`, seen, qkv);
    if (config.qk_norm) {
      for (let head = 0; head < config.heads; head++) {
        this.norm(`${name}.query_norm`, columnsOf(qkv, head * headWidth, headWidth), columnsOf(qkv, head * headWidth, headWidth));
        this.norm(`${name}.key_norm`, columnsOf(qkv, width + head * headWidth, headWidth), columnsOf(qkv, width + head * headWidth, headWidth));
      }
    }
    this.rotate(index);
    const scale = headWidth ** -0.5;
    for (let head = 0; head < config.heads; head++) {
      const [query, key, value] = [0, 1, 2].map((which) => columnsOf(qkv, which * width + head * headWidth, headWidth));
      record(`${name}.query`, query, head);
      record(`${name}.key`, key, head);
      record(`${name}.value`, value, head);
      arena.fill(keys, headWidth, tokens, (place, token) => numbers[key.at + token * key.stride + place] * scale);
      arena.multiply(qkv, keys, weights, head * headWidth);
      this.addBias(index, head);
      if (off.has(`h${index}.${head}`) || off.has(`a${index}`) || off.has(`b${index}`)) this.clear(weights);
      else for (let token = 0; token < tokens; token++) softmaxRow(arena.row(weights, token));
      record(`${name}.weights`, weights, head);
      arena.fill(values, tokens, headWidth, (token, place) => numbers[value.at + token * value.stride + place]);
      arena.multiply(weights, values, mixed);
      const target = columnsOf(joined, head * headWidth, headWidth);
      for (let token = 0; token < tokens; token++) arena.row(target, token).set(arena.row(mixed, token));
    }
    if (config.sub_norm === "attention+mlp") this.norm(`${name}.joined_norm`, joined, joined);
    return this.linear(`${name}.projection`, joined, output);
  }

  /** Rotary positions: pairs of numbers of queries and keys turn by each token's angles. */
  rotate(index) {
    const { arena, sheets, config, headWidth, parts, neighbours } = this;
    if (!parts.cosine) return;
    const half = headWidth / 2;
    const own = parts.cosine.length > config.tokens * half; // each block and head has its own angles
    const apart = neighbours ? 1 : half;
    for (let token = 0; token < config.tokens; token++) {
      for (let head = 0; head < 2 * config.heads; head++) {
        const row = arena.row(columnsOf(sheets.qkv, head * headWidth, headWidth), token);
        const start = (own ? (token * config.depth + index) * config.heads + (head % config.heads) : token) * half;
        for (let pair = 0; pair < half; pair++) {
          const at = neighbours ? 2 * pair : pair;
          const [first, second] = [row[at], row[at + apart]];
          const [cosine, sine] = [parts.cosine[start + pair], parts.sine[start + pair]];
          row[at] = first * cosine - second * sine;
          row[at + apart] = first * sine + second * cosine;
        }
      }
    }
  }

  /** Relative positions: a bias on each score by how far apart two patches lie. */
  addBias(index, head) {
    const { arena, sheets, config, parts } = this;
    const table = parts[`blocks.${index}.attention.relative.table`];
    if (!table) return;
    for (let token = 0; token < config.tokens; token++) {
      const row = arena.row(sheets.weights, token);
      for (let other = 0; other < row.length; other++) row[other] += table[parts.relative[token * config.tokens + other] * config.heads + head];
    }
  }

  mlp(name, seen, out, inner) {
    const { arena, sheets, config } = this;
    const expanded = this.parts[`${name}.expand.scale`].length;
    const hidden = { ...sheets.hidden, rows: seen.rows, width: expanded };
    this.linear(`${name}.expand`, seen, hidden);
    const activate = ACTIVATIONS[config.activation];
    for (let token = 0; token < hidden.rows; token++) activate(arena.row(hidden, token));
    const kept = { ...hidden, width: config.activation === "swiglu" ? expanded / 2 : expanded };
    if (inner) this.norm(`${name}.hidden_norm`, kept, kept);
    return this.linear(`${name}.contract`, kept, out);
  }

  /** The one vector that stands for the image. */
  read() {
    const { arena, sheets, config, prefix } = this;
    const { tokens, pooled } = sheets;
    const first = config.pool_over === "tokens" || config.pool === "attention" ? 0 : prefix;
    const out = { ...pooled, width: config.width };
    if (config.pool === "attention" || config.pool === "map") return this.attentionPool(first, out);
    if (config.pool === "mean") {
      this.mean(arena.row(out, 0), first);
      return out;
    }
    arena.row(out, 0).set(arena.row(tokens, 0));
    if (config.pool !== "class+mean") return out;
    this.mean(arena.row(columnsOf(pooled, config.width, config.width), 0), prefix);
    return pooled;
  }

  mean(out, first) {
    const { arena, sheets } = this;
    const sums = new Float64Array(out.length);
    for (let token = first; token < sheets.tokens.rows; token++) addTo(sums, arena.row(sheets.tokens, token));
    for (let index = 0; index < out.length; index++) out[index] = sums[index] / (sheets.tokens.rows - first);
  }

  /** A learned query looks at the tokens once; in `map` an MLP on a norm is added to what it saw. */
  attentionPool(first, out) {
    const { arena, sheets, config, parts } = this;
    const { width, tokens } = config;
    const heads = config.pool === "map" ? config.pool_heads || config.heads : config.heads;
    const size = width / heads;
    const { one } = sheets;
    arena.row(one, 0).set(parts[config.pool === "map" ? "pool.probe" : "pool.query"]);
    if (config.pool === "map") this.linear("pool.query", one, out);
    const query = Float32Array.from(arena.row(config.pool === "map" ? out : one, 0));
    const both = this.linear("pool.key_value", sheets.tokens, { ...sheets.qkv, width: 2 * width });
    const seen = arena.row(one, 0).fill(0);
    for (let head = 0; head < heads; head++) {
      const scores = new Float32Array(tokens - first);
      for (let token = first; token < tokens; token++) {
        const row = arena.row(both, token);
        let sum = 0;
        for (let index = head * size; index < (head + 1) * size; index++) sum += query[index] * row[index];
        scores[token - first] = sum * size ** -0.5;
      }
      softmaxRow(scores);
      for (let token = first; token < tokens; token++) {
        const row = arena.row(both, token);
        for (let index = head * size; index < (head + 1) * size; index++) seen[index] += scores[token - first] * row[width + index];
      }
    }
    this.linear("pool.projection", one, out);
    if (config.pool !== "map") return out;
    const normed = this.norm("pool.norm", out, one);
    const added = this.mlp("pool.mlp", normed, { ...sheets.output, rows: 1 }, false);
    addTo(arena.row(out, 0), arena.row(added, 0));
    return out;
  }

  head(name, pooled) {
    return this.config.classes ? this.headRows(name, pooled)[0] : Float32Array.from(this.arena.row(pooled, 0));
  }

  /** A tanh layer where there is one, then a linear one: logits of every row. */
  headRows(name, pooled) {
    const { arena, sheets, config } = this;
    const { rows } = pooled;
    let seen = pooled;
    if (config.head_hidden) {
      seen = this.linear(`${name}.hidden`, pooled, { ...sheets.hidden, rows, width: config.head_hidden });
      for (let index = 0; index < rows; index++) bendTanh(arena.row(seen, index));
    }
    const logits = this.linear(`${name}.linear`, seen, { ...sheets.logits, rows });
    return Array.from({ length: rows }, (_, index) => Float32Array.from(arena.row(logits, index)));
  }

  // The three things that everything is made of

  linear(name, sheet, out) {
    this.arena.multiply(sheet, this.layers.get(name), out);
    return out;
  }

  /** LayerNorm or RMSNorm of each row of `sheet`, into `out`. */
  norm(name, sheet, out) {
    const { arena, config, parts } = this;
    const { [`${name}.weight`]: weight, [`${name}.bias`]: bias } = parts;
    const centred = config.norm === "layer";
    for (let token = 0; token < sheet.rows; token++) {
      const [row, to] = [arena.row(sheet, token), arena.row({ ...out, width: sheet.width }, token)];
      let [mean, variance] = [0, 0];
      if (centred) for (let index = 0; index < row.length; index++) mean += row[index];
      mean /= row.length;
      for (let index = 0; index < row.length; index++) variance += (row[index] - mean) ** 2;
      const scale = 1 / Math.sqrt(variance / row.length + config.norm_epsilon);
      for (let index = 0; index < row.length; index++) to[index] = (row[index] - mean) * scale * weight[index] + (bias ? bias[index] : 0);
    }
    return { ...out, rows: sheet.rows, width: sheet.width };
  }

  clear(sheet) {
    this.arena.numbers.fill(0, sheet.at, sheet.at + sheet.rows * sheet.stride);
  }
}

/** Some columns of a sheet. */
function columnsOf(sheet, from, width) {
  return { ...sheet, at: sheet.at + from, width };
}

function addTo(row, more) {
  for (let index = 0; index < row.length; index++) row[index] += more[index];
}

function softmaxRow(row) {
  let top = -Infinity;
  for (let index = 0; index < row.length; index++) if (row[index] > top) top = row[index];
  let sum = 0;
  for (let index = 0; index < row.length; index++) sum += row[index] = Math.exp(row[index] - top);
  for (let index = 0; index < row.length; index++) row[index] /= sum;
}

/** Abramowitz and Stegun 7.1.26: at most 1.5e-7 off, no more than single precision is. */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * Math.exp(-x * x);
  return x < 0 ? tail - 1 : 1 - tail;
}

function eachNumber(activate) {
  return (row) => {
    for (let index = 0; index < row.length; index++) row[index] = activate(row[index]);
  };
}

const bendTanh = eachNumber(Math.tanh);

const ACTIVATIONS = {
  gelu: eachNumber((x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2))),
  gelu_tanh: eachNumber((x) => 0.5 * x * (1 + Math.tanh(0.7978845608028654 * (x + 0.044715 * x ** 3)))),
  quick_gelu: eachNumber((x) => x / (1 + Math.exp(-1.702 * x))),
  relu: eachNumber((x) => Math.max(x, 0)),
  swiglu: (row) => {
    const half = row.length / 2;
    for (let index = 0; index < half; index++) row[index] = (row[index] / (1 + Math.exp(-row[index]))) * row[half + index];
  },
};
