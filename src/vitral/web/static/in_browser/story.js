// The numbers behind a story of one's own picture, computed in the browser: what vitral.web.story says of them holds here.

import { ranking } from "../core/trace.js";
import { tokenKeeper } from "./depth.js";
import { shuffle } from "./parts.js";
import { roundHalfEven } from "./preprocess.js";
import { Watcher, patchDistances } from "./watcher.js";

const TOLD = 0; // the block that is told
const [TOLD_HEADS, PATTERN_COUNT, TOLD_ANSWERS] = [3, 12, 3];
const [SINK, LARGE_SHARE, LONGER] = [5, 0.2, 1.5];
const [HELD, RANDOM_DRAWS] = [0.5, 8];

/** `order`: which patch stands at each place when shuffled; `shares(logits)`; `covered(image, patches)`: a copy without these. */
export function storyOf(engine, { image, order, shares, covered }) {
  return engine.alone(async () => {
    const { config, arena, prefix, headWidth, parts } = engine;
    const { grid, width, tokens } = config;
    const patches = grid[0] * grid[1];
    const first = new FirstBlock(config, arena);
    const keeper = tokenKeeper(arena, config.depth);
    const logits = await engine.forward(image, { record: (...given) => [first, keeper].forEach((each) => each.record(...given)) });
    const mixed = new Watcher(config, 0, arena);
    const shuffled = await engine.forward(image, { order, record: (...given) => mixed.record(...given) });
    const near = first.watcher.measures.distance[TOLD];
    const chosen = headsToTell(near);
    const contrast = contrasts(image, config);
    const numbers = ranking(variances(first.patches, patches, width)).slice(0, PATTERN_COUNT);
    const even = patchDistances(config).reduce((sum, value) => sum + value, 0) / patches ** 2;
    const answer = (found) => (config.classes ? ranking(shares(found)).slice(0, TOLD_ANSWERS).map((index) => [index, shares(found)[index]]) : []);
    const early = keeper.kept.slice(0, -1).map((kept) => {
      arena.numbers.set(kept, engine.sheets.tokens.at);
      return answer(engine.answer());
    });
    const sinks = first.watcher.means.map((mean, block) => sinkOf(mean, keeper.kept[block], engine, contrast));
    const target = logits.indexOf(Math.max(...logits));
    const without = async (gone) => shares(await engine.forward(covered(image, gone)))[target];
    const judge = { config, target, before: config.classes > 1 ? shares(logits)[target] : null, without };
    const header = {
      grid,
      prefix,
      tokens,
      width,
      patch: config.patch_size,
      stride: config.stride ?? config.patch_size,
      image: config.image_size,
      channels: config.channels,
      stem: false,
      patch_start: startingPatch(contrast, grid),
      numbers,
      positions: config.positions,
      positions_norm: config.embedding_norm,
      block: TOLD,
      heads: chosen,
      head_start: chosen.reduce((best, head) => (first.between[head] > first.between[best] ? head : best)),
      head_width: headWidth,
      reads: config.pool,
      depth: config.classes ? [...early, answer(logits)] : [],
      shuffle: { order, answer: answer(shuffled) },
      head_distance: Object.fromEntries(chosen.map((head) => [head, { distance: near[head], shuffled: mixed.measures.distance[TOLD][head], even }])),
      sinks,
      sink_ablation: await sinksCovered(judge, sinks, prefix),
      top_patch_ablation: await reasonOf(judge, first.watcher.means.at(-1)),
    };
    const sections = { patches: first.patches, patterns: patternsOf(engine, numbers) };
    if (/learned|sincos/.test(config.positions)) sections.positions = parts.start.subarray(prefix * width);
    for (const name of ["query", "key", "value"]) sections[name] = joinedRows(chosen.map((head) => first.heads[name][head]));
    const table = parts[`blocks.${TOLD}.attention.relative.table`];
    if (table) sections.bias = joinedRows(chosen.map((head) => Float32Array.from(parts.relative, (place) => table[place * config.heads + head])));
    return { header, sections };
  });
}

/** Keeps what the story tells of the first block, and lets a watcher see all attention. */
class FirstBlock {
  constructor(config, arena) {
    Object.assign(this, { config, arena, heads: { query: [], key: [], value: [] }, between: [], watcher: new Watcher(config, 0, arena) });
  }

  record(name, sheet, head) {
    this.watcher.record(name, sheet, head);
    const part = name.split(`blocks.${TOLD}.attention.`)[1];
    if (name === "patches") this.patches = this.copy(sheet);
    else if (part in this.heads) this.heads[part].push(this.copy(sheet));
    else if (part === "weights") this.between.push(this.toOthers(sheet));
  }

  copy(sheet) {
    return joinedRows(Array.from({ length: sheet.rows }, (_, token) => this.arena.row(sheet, token)));
  }

  /** How much of the patches' attention goes to patches other than themselves. */
  toOthers(sheet) {
    const { prefix, tokens } = this.config;
    let sum = 0;
    for (let token = prefix; token < tokens; token++) {
      const row = this.arena.row(sheet, token);
      for (let other = prefix; other < tokens; other++) if (other !== token) sum += row[other];
    }
    return sum / (tokens - prefix);
  }
}

/** The head that looks nearest, the one that looks farthest, and those between. */
function headsToTell(near) {
  const count = Math.min(TOLD_HEADS, near.length);
  const places = Array.from({ length: count }, (_, index) => (count > 1 ? roundHalfEven((index * (near.length - 1)) / (count - 1)) : 0));
  const order = ranking(near.map((far) => -far));
  return [...new Set(places)].map((place) => order[place]).sort((a, b) => a - b);
}

/** How much the pixels of each patch differ. */
function contrasts(image, { channels, grid: [rows, columns], image_size: [height, width] }) {
  const edge = (index, pixels, count) => roundHalfEven((index * pixels) / count);
  return Array.from({ length: rows * columns }, (_, patch) => {
    const [row, column] = [Math.floor(patch / columns), patch % columns];
    let total = 0;
    for (let channel = 0; channel < channels; channel++) {
      let [count, sum, squares] = [0, 0, 0];
      for (let y = edge(row, height, rows); y < edge(row + 1, height, rows); y++) {
        for (let x = edge(column, width, columns); x < edge(column + 1, width, columns); x++, count++) {
          const value = image[(channel * height + y) * width + x];
          sum += value;
          squares += value * value;
        }
      }
      total += Math.sqrt(Math.max(0, squares / count - (sum / count) ** 2));
    }
    return total / channels;
  });
}

/** The patch with most contrast in the middle half of the picture. */
function startingPatch(contrast, [rows, columns]) {
  const middle = (at, size) => Math.abs(at - (size - 1) / 2) <= size / 4;
  const seen = contrast.map((value, patch) => (middle(Math.floor(patch / columns), rows) && middle(patch % columns, columns) ? value : -1));
  return ranking(seen)[0];
}

/** The tokens that draw attention whoever asks; null: none does. `mean`: (T, T), `kept`: the tokens before the block. */
function sinkOf(mean, kept, { config, prefix, sheets }, contrast) {
  const { tokens, width } = config;
  const column = new Float32Array(tokens);
  const shares = new Float32Array(tokens);
  const found = [];
  for (let token = 0; token < tokens; token++) {
    for (let other = 0; other < tokens; other++) column[other] = mean[other * tokens + token];
    shares[token] = column.reduce((sum, value) => sum + value, 0) / tokens;
    const usual = column.sort()[Math.floor((tokens - 1) / 2)]; // what at least half of all tokens give
    if (usual >= SINK / tokens && (token >= prefix || shares[token] >= LARGE_SHARE)) found.push(token);
  }
  if (!found.length) return null;
  const lengths = Array.from({ length: tokens - prefix }, (_, patch) => Math.hypot(...kept.subarray((prefix + patch) * sheets.tokens.stride, (prefix + patch) * sheets.tokens.stride + width)));
  const patches = found.filter((token) => token >= prefix).map((token) => token - prefix);
  const ratio = patches.length ? Math.min(...patches.map((patch) => lengths[patch])) / median(lengths) : 0;
  return {
    tokens: found.map((token) => [token, shares[token]]).sort((a, b) => b[1] - a[1]),
    norm_ratio: ratio >= LONGER ? ratio : null,
    low_contrast: patches.length > 0 && patches.every((patch) => contrast[patch] < median(contrast)),
  };
}

/** What the answer loses without the sinks. */
async function sinksCovered({ config, target, before, without }, sinks, prefix) {
  const patches = [...new Set(sinks.flatMap((sink) => sink?.tokens ?? []).map(([token]) => token - prefix))].filter((patch) => patch >= 0);
  if (!patches.length || config.classes < 2) return null;
  return { patches: patches.length, target, before, after: await without(patches) };
}

/** Does the last map point to what counts? The patches it likes best are covered, then as many others, drawn at random. */
async function reasonOf({ config, target, before, without }, last) {
  const { tokens, prefix, pool } = config;
  if (config.classes < 2 || !["class", "mean"].includes(pool)) return null;
  const asking = pool === "class" ? [0] : Array.from({ length: tokens - prefix }, (_, patch) => prefix + patch);
  const row = Array.from({ length: tokens - prefix }, (_, patch) => asking.reduce((sum, token) => sum + last[token * tokens + prefix + patch], 0) / asking.length);
  const order = ranking(row);
  const all = row.reduce((sum, value) => sum + value, 0);
  let [count, held] = [0, 0];
  while (held < HELD && count < order.length) held += row[order[count++]] / all;
  if (row.length < 2 * count) return null;
  const most = await without(order.slice(0, count));
  let random = 0;
  for (let draw = 1; draw <= RANDOM_DRAWS; draw++) random += (await without(shuffle(order.slice(count), draw).slice(0, count))) / RANDOM_DRAWS;
  return { count, share: held, target, before, most, random };
}

/** The weights of some of a patch vector's numbers as colours: grey is zero, each scaled by its own largest weight. */
function patternsOf({ arena, layers, config }, numbers) {
  const [rows, columns] = config.patch_size;
  const size = rows * columns;
  const out = new Uint8Array(numbers.length * size * 3);
  numbers.forEach((number, index) => {
    const weights = arena.column(layers.get("patches.projection"), number).subarray(0, size * config.channels);
    const reach = weights.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-30);
    for (let pixel = 0; pixel < size; pixel++) {
      for (let channel = 0; channel < 3; channel++) {
        out[(index * size + pixel) * 3 + channel] = roundHalfEven(127.5 + (127.5 * weights[(config.channels === 3 ? channel : 0) * size + pixel]) / reach);
      }
    }
  });
  return out;
}

function variances(values, rows, width) {
  return Array.from({ length: width }, (_, column) => {
    let [sum, squares] = [0, 0];
    for (let row = 0; row < rows; row++) sum += values[row * width + column];
    for (let row = 0; row < rows; row++) squares += (values[row * width + column] - sum / rows) ** 2;
    return squares / rows;
  });
}

function joinedRows(rows) {
  const out = new Float32Array(rows.length * rows[0].length);
  rows.forEach((row, index) => out.set(row, index * row.length));
  return out;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = (sorted.length - 1) / 2;
  return (sorted[Math.floor(half)] + sorted[Math.ceil(half)]) / 2;
}
