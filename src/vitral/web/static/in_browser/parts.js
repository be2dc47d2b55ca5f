// What many passes tell, one after another in the browser: occlusion, and how much each head matters. Both can be stopped.

import { roundHalfEven } from "./preprocess.js";

const MANY = 64;
const REACH = 2.5;
const POINTS = 13;

/** Counts passes, and ends when nobody waits any more. */
export class LongWork {
  constructor(what, total, signal) {
    Object.assign(this, { what, total, signal, done: 0, began: performance.now() });
  }

  step() {
    this.signal?.throwIfAborted();
    this.done++;
  }

  get seconds() {
    return ((performance.now() - this.began) / 1000 / Math.max(this.done, 1)) * (this.total - this.done);
  }
}

/** How much the score falls when a square around each patch is covered; where they are many, every second one, the others between them. */
export function squaresOf({ grid: [rows, columns] }) {
  const size = Math.max(1, roundHalfEven(Math.min(rows, columns) / 5));
  const places = Array.from({ length: rows * columns }, (_, index) => [Math.floor(index / columns), index % columns]);
  const between = size > 1 && places.length > MANY;
  return { size, between, places: between ? places.filter(([row, column]) => (row + column) % 2 === 0) : places };
}

export async function occlusionOf({ config, score, covered, work }) {
  const [rows, columns] = config.grid;
  const { size, between, places } = squaresOf(config);
  const before = Math.floor((size - 1) / 2);
  const after = size - before;
  const whole = await score(covered(null));
  const grid = new Float64Array(rows * columns).fill(NaN);
  for (const [row, column] of places) {
    work.step();
    const square = [Math.max(0, row - before), Math.min(rows, row + after), Math.max(0, column - before), Math.min(columns, column + after)];
    grid[row * columns + column] = whole - (await score(covered(square)));
  }
  return { whole, size, between, grid: between ? fillBetween(grid, config.grid) : grid };
}

/** The missing (NaN) numbers from the others by kriging, as vitral.look.occlusion does it. */
function fillBetween(grid, [, columns]) {
  const place = (index) => [Math.floor(index / columns), index % columns];
  const resemble = (a, b) => {
    const [[row, column], [otherRow, otherColumn]] = [place(a), place(b)];
    const far = (Math.sqrt(3) / REACH) * Math.hypot(row - otherRow, column - otherColumn);
    return (1 + far) * Math.exp(-far);
  };
  const known = [...grid.keys()].filter((index) => !Number.isNaN(grid[index]));
  const among = known.map((a) => [...known.map((b) => resemble(a, b) + (a === b ? 0.01 : 0)), 1, grid[a]]);
  const [ones, parts] = solve(among);
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const mean = sum(parts) / sum(ones);
  return grid.map((value, index) => (Number.isNaN(value) ? mean + sum(known.map((other, at) => resemble(index, other) * (parts[at] - mean * ones[at]))) : value));
}

/** Rows of a square matrix, each followed by two right sides → the two solutions, by elimination (the matrix is positive definite). */
function solve(rows) {
  const count = rows.length;
  for (let pivot = 0; pivot < count; pivot++) {
    for (let row = pivot + 1; row < count; row++) {
      const factor = rows[row][pivot] / rows[pivot][pivot];
      for (let column = pivot; column < count + 2; column++) rows[row][column] -= factor * rows[pivot][column];
    }
  }
  const solutions = [new Array(count), new Array(count)];
  solutions.forEach((solution, side) => {
    for (let row = count - 1; row >= 0; row--) {
      let value = rows[row][count + side];
      for (let column = row + 1; column < count; column++) value -= rows[row][column] * solution[column];
      solution[row] = value / rows[row][row];
    }
  });
  return solutions;
}

/** Passes that `importanceOf` makes. */
export function importancePasses({ depth, heads }) {
  return depth * (heads + 3) + 2 * removalCounts(depth * heads).length;
}

function removalCounts(heads) {
  const points = Math.min(POINTS, heads + 1);
  return [...new Set(Array.from({ length: points }, (_, index) => roundHalfEven((index * heads) / (points - 1))))];
}

/** Every head, and every block's attention, MLP and both, off once; then heads off one after another, the least important first. */
export async function importanceOf({ config, score, work }) {
  const without = async (parts) => {
    work.step();
    return score(new Set(parts));
  };
  const whole = await score(new Set());
  const [heads, parts] = [[], []];
  for (let block = 0; block < config.depth; block++) {
    heads.push([]);
    parts.push([]);
    for (let head = 0; head < config.heads; head++) heads[block].push((await without([`h${block}.${head}`])) - whole);
    for (const part of [`a${block}`, `m${block}`, `b${block}`]) parts[block].push((await without([part])) - whole);
  }
  const loss = heads.flat();
  const order = [...loss.keys()].sort((a, b) => loss[b] - loss[a]).map((place) => `h${Math.floor(place / config.heads)}.${place % config.heads}`);
  const shuffled = shuffle(order);
  const counts = removalCounts(order.length);
  const [confidence, random] = [[], []];
  for (const count of counts) {
    confidence.push(await without(order.slice(0, count)));
    random.push(await without(shuffled.slice(0, count)));
  }
  const low = confidence.findIndex((value) => value < confidence[0] / 2);
  return { heads, parts, baseline: whole, order, counts, confidence, random, draws: 1, half_point: low < 0 ? counts.at(-1) : counts[Math.max(low - 1, 0)], share: null, n_images: 0, labelled: false };
}

/** The same order each time. */
export function shuffle(items, seed = 1) {
  const out = [...items];
  for (let index = out.length - 1; index > 0; index--) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    const other = Math.floor((seed / 2 ** 32) * (index + 1));
    [out[index], out[other]] = [out[other], out[index]];
  }
  return out;
}
