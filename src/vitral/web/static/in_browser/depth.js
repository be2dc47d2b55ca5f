// A picture at every depth, computed in the browser: what vitral.web.depth packs on the server.

import { ranking } from "../core/trace.js";
import { roundHalfEven } from "./preprocess.js";

const LARGEST = 50_000_000;
const LINES = 4;
const MOST_PROBABLE = 5;

/** Keeps the tokens after the embedding and after each block, as copies. */
export function tokenKeeper(arena, depth) {
  const kept = [];
  const names = ["embedding", ...Array.from({ length: depth }, (_, block) => `blocks.${block}.output`)];
  const record = (name, sheet) => {
    if (names.includes(name)) kept.push(arena.numbers.slice(sheet.at, sheet.at + sheet.rows * sheet.stride));
  };
  return { kept, record };
}

/** The patches' tokens after every block, each divided by its largest number, in eight bits. */
export async function featuresOf(engine, image, off) {
  const { config, prefix, arena } = engine;
  const { kept, record } = tokenKeeper(arena, config.depth);
  await engine.run(image, { off, record });
  const { stride } = engine.sheets.tokens;
  const sections = {};
  kept.slice(1).forEach((tokens, block) => {
    const out = new Int8Array((config.tokens - prefix) * config.width);
    for (let token = prefix; token < config.tokens; token++) {
      const row = tokens.subarray(token * stride, token * stride + config.width);
      let top = 1e-30;
      for (const value of row) top = Math.max(top, Math.abs(value));
      for (let index = 0; index < row.length; index++) out[(token - prefix) * config.width + index] = roundHalfEven((row[index] / top) * 127);
    }
    sections[`block-${block}`] = out;
  });
  const blocks = [...Array(config.depth).keys()];
  return { header: { blocks, grids: blocks.map(() => config.grid), of: config.depth }, sections };
}

/** The head read after the embedding and after each block, of the picture and of each patch; `shares(logits)`: their probabilities. */
export function depthOf(engine, image, off, target, shares) {
  const { config, arena, sheets } = engine;
  const patches = config.grid[0] * config.grid[1];
  if (!config.classes || (config.depth + 1) * patches * config.classes > LARGEST) {
    throw Object.assign(new Error(config.classes ? "this model has too many patches and classes to read all of them here" : "this model has no head to read"), { status: 422 });
  }
  return engine.alone(async () => {
    const { kept, record } = tokenKeeper(arena, config.depth);
    const final = await engine.forward(image, { off, record });
    target ??= final.indexOf(Math.max(...final));
    const whole = [];
    const sections = { answers: new Uint16Array(kept.length * patches), confidence: new Uint8Array(kept.length * patches), target: new Uint8Array(kept.length * patches) };
    kept.forEach((tokens, depth) => {
      arena.numbers.set(tokens, sheets.tokens.at);
      engine.readPatches().forEach((logits, patch) => {
        const each = shares(logits);
        const best = logits.indexOf(logits.reduce((most, value) => Math.max(most, value), -Infinity));
        const at = depth * patches + patch;
        sections.answers[at] = best;
        sections.confidence[at] = Math.round(each[best] * 255);
        sections.target[at] = Math.round(each[target] * 255);
      });
      arena.numbers.set(tokens, sheets.tokens.at);
      whole.push(shares(engine.answer()));
    });
    const answers = whole.map((row) => ranking(row)[0]);
    const wrong = answers.findLastIndex((answer) => answer !== answers.at(-1));
    const header = {
      top: whole.map((row) => ranking(row).slice(0, MOST_PROBABLE).map((index) => [index, row[index]])),
      settled: wrong + 1,
      target,
      lines: classesToFollow(answers, target).map((index) => [index, whole.map((row) => row[index])]),
      grid: config.grid,
    };
    return { header, sections };
  });
}

/** The classes to follow: the target, the final answer, then those that lead somewhere on the way, the longest leader first. */
function classesToFollow(answers, target) {
  const counts = new Map();
  for (const answer of answers) counts.set(answer, (counts.get(answer) ?? 0) + 1);
  const byTime = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || a - b);
  return [...new Set([target, answers.at(-1), ...byTime])].slice(0, LINES);
}

