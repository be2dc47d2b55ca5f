// The numbers of a story, as vitral.web.story describes them, and what the model computes from them: scores, shares, mixes.

export class StoryData {
  constructor(header, sections) {
    Object.assign(this, header);
    this.sections = sections;
    this.patches = header.grid[0] * header.grid[1];
  }

  /** The numbers that stand for a patch. */
  vector(patch) {
    return this.sections.patches.subarray(patch * this.width, (patch + 1) * this.width);
  }

  /** One number of every patch's vector. */
  fits(number) {
    return Float32Array.from({ length: this.patches }, (_, patch) => this.sections.patches[patch * this.width + number]);
  }

  /** What is added to the vector of whatever lies at a place; null where nothing is. */
  place(patch) {
    return this.sections.positions?.subarray(patch * this.width, (patch + 1) * this.width) ?? null;
  }

  /** Where a patch stands after shuffling. */
  shuffledTo(patch) {
    return this.shuffle.order.indexOf(patch);
  }

  /** A token's question, key or value in a head. */
  part(name, head, token) {
    const start = (this.heads.indexOf(head) * this.tokens + token) * this.head_width;
    return this.sections[name].subarray(start, start + this.head_width);
  }

  /** question · key, its parts, and what the distance adds. */
  answer(head, asking, answering) {
    const query = this.part("query", head, asking);
    const key = this.part("key", head, answering);
    const products = query.map((value, index) => value * key[index]);
    const match = products.reduce((sum, value) => sum + value, 0);
    const start = (this.heads.indexOf(head) * this.tokens + asking) * this.tokens;
    const bias = this.sections.bias?.[start + answering] ?? 0;
    return { query, key, products, match, bias, score: match / Math.sqrt(this.head_width) + bias };
  }

  scores(head, asking) {
    return Float64Array.from({ length: this.tokens }, (_, token) => this.answer(head, asking, token).score);
  }

  /** Shares that add up to 1; the model's own sharpness is 1. */
  shares(scores, sharpness = 1) {
    const top = Math.max(...scores);
    const powers = scores.map((score) => Math.exp((score - top) * sharpness));
    const sum = powers.reduce((all, power) => all + power, 0);
    return powers.map((power) => power / sum);
  }

  /** The values of these tokens, each by its share, added up. */
  mix(head, shares, tokens) {
    const sum = new Float64Array(this.head_width);
    for (const token of tokens) this.part("value", head, token).forEach((value, index) => (sum[index] += shares[token] * value));
    return sum;
  }
}

/** From 1, the same direction, to −1, the opposite one. */
export function alike(first, second) {
  const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
  return dot(first, second) / Math.max(Math.sqrt(dot(first, first) * dot(second, second)), 1e-12);
}
