// What each patch holds at every depth, and how alike two of them are: within a picture, across pictures, in each model on its own.

import { cellAt, movePointer, pointer } from "../core/pointer.js";
import { partsOf, state } from "../core/state.js";

/** The patches' tokens of one picture in one model; a number a byte, each token in its own scale, which a cosine does not ask for. */
class Features {
  constructor({ header, sections }, image) {
    Object.assign(this, { header, sections, image, lengths: new Map() });
  }

  /** The block that is here and lies nearest to the asked one; without one, the last. */
  near(block) {
    const { blocks } = this.header;
    if (block < 0) return blocks.length - 1;
    return blocks.reduce((best, each, index) => (Math.abs(each - block) < Math.abs(blocks[best] - block) ? index : best), 0);
  }

  grid(at) {
    return this.header.grids[at];
  }

  /** Codes of all patches after a block, and the length of each. */
  tokens(at) {
    if (!this.lengths.has(at)) {
      const raw = this.sections[`block-${this.header.blocks[at]}`];
      const codes = new Int8Array(raw.buffer, raw.byteOffset, raw.byteLength);
      const [rows, columns] = this.grid(at);
      const width = codes.length / (rows * columns);
      const lengths = Float32Array.from({ length: rows * columns }, (_, cell) => {
        let sum = 0;
        for (let index = cell * width; index < (cell + 1) * width; index++) sum += codes[index] * codes[index];
        return Math.sqrt(sum) || 1;
      });
      this.lengths.set(at, { codes, lengths, width });
    }
    return this.lengths.get(at);
  }

  /** Cosine similarity of every patch here with one patch of `other`, after the block at `at` of each. */
  alike(at, other, cell) {
    const mine = this.tokens(at);
    const theirs = other.tokens(at);
    const { width } = mine;
    const start = cell * width;
    return Float32Array.from(mine.lengths, (length, patch) => {
      let sum = 0;
      for (let index = 0; index < width; index++) sum += mine.codes[patch * width + index] * theirs.codes[start + index];
      return sum / (length * theirs.lengths[cell]);
    });
  }
}

/** Features that are here; what is asked for and is not comes later, and everyone who follows the pointer hears of it. */
export class FeatureShelf {
  constructor(app) {
    Object.assign(this, { app, held: new Map(), asked: new Set() });
  }

  get(model, picture) {
    const off = new Set([...this.app.partsOff(model)].filter((part) => part[0] !== "p" || picture === state.picture));
    const key = `${model} ${picture} ${partsOf(off)}`;
    if (!this.held.has(key) && !this.asked.has(key)) {
      this.asked.add(key);
      this.fetch(key, model, picture, off);
    }
    return this.held.get(key) ?? null;
  }

  async fetch(key, model, picture, off) {
    try {
      const found = await this.app.source.ask("features", { model, picture, off });
      const image = await createImageBitmap(new Blob([found.sections.picture], { type: found.header.kind }));
      this.held.set(key, new Features(found, image));
      if (this.held.size > 40) this.held.delete(this.held.keys().next().value);
      this.asked.delete(key);
      movePointer(pointer.at);
    } catch (error) {
      this.app.complain(error); // and not asked for again by every move of the pointer
    }
  }

  /** Where one points: on the picture, on one of those beside it, or the chosen patch. */
  pointedAt() {
    if (pointer.at) return { picture: state.picture, at: pointer.at };
    if (pointedBeside.at) return { ...pointedBeside };
    const { trace } = this.app.current();
    const patch = trace && state.token !== null ? state.token - trace.prefix : -1;
    if (patch < 0) return { picture: state.picture, at: [0.5, 0.5] };
    const [rows, columns] = trace.grid;
    return { picture: state.picture, at: [((patch % columns) + 0.5) / columns, (Math.floor(patch / columns) + 0.5) / rows] };
  }

  /** Every patch of a picture compared with the one that is pointed at, in one model; null until it is here. */
  compare(model, picture, block) {
    const pointed = this.pointedAt();
    const here = this.get(model, picture);
    const there = this.get(model, pointed.picture);
    if (!here || !there) return null;
    const at = here.near(block);
    const cell = cellAt(pointed.at, there.grid(at));
    if (cell === null) return null;
    const values = here.alike(at, there, cell);
    let best = -1;
    const own = pointed.picture === picture ? cell : -1; // a patch is always most like itself
    values.forEach((value, patch) => (patch !== own && (best < 0 || value > values[best]) ? (best = patch) : 0));
    return { values, grid: here.grid(at), image: here.image, block: here.header.blocks[at], own, best };
  }
}

/** A place on a picture that is not the chosen one. */
const pointedBeside = { picture: null, at: null };

export function pointBeside(picture, at) {
  Object.assign(pointedBeside, { picture, at });
  movePointer(null);
}
