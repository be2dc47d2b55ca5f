// What a view waits for: the answer to its newest question. Older answers are dropped, and whoever computes them is called off.

const POLL = 400; // milliseconds between two looks at how far the work is

export class Request {
  /** `progress(work)` gets how far a slow work is, from `delay` milliseconds on; `retry`: a question that failed is asked again. */
  constructor(app, { progress = null, delay = 0, retry = true } = {}) {
    Object.assign(this, { app, progress, delay, retry, key: "", answer: null, error: null, stop: null });
  }

  get pending() {
    return this.stop !== null;
  }

  /** Another question: the old one is called off and its answer dropped. Returns whether it is another one. */
  renew(key) {
    if (key === this.key) return false;
    this.cancel();
    Object.assign(this, { key, answer: null, error: null });
    return true;
  }

  /** Get the answer by `make(signal)`; true: it is here, and the question is still the same. An error is shown. */
  async run(make, slow = true) {
    const { key } = this;
    const stop = (this.stop = new AbortController());
    const late = this.progress && setTimeout(() => this.watch(stop, slow), this.delay);
    try {
      const answer = await make(stop.signal);
      if (this.key !== key) return false;
      this.answer = answer;
      return true;
    } catch (error) {
      if (this.key !== key) return false;
      if (this.retry) this.key = "";
      if (error.name === "AbortError") return false;
      this.error = error;
      this.app.complain(error);
      return false;
    } finally {
      clearTimeout(late);
      if (this.stop === stop) this.stop = null;
    }
  }

  cancel() {
    this.stop?.abort();
  }

  async watch(stop, slow) {
    if (this.stop === stop) this.progress({});
    while (slow && this.stop === stop) {
      const work = await this.app.source.work().catch(() => ({}));
      if (this.stop === stop) this.progress(work);
      await new Promise((resolve) => setTimeout(resolve, POLL));
    }
  }
}

/** "computing … 40 %, about 12 s left"; nothing where the work does not say. */
export function progressText(before, { done, total, seconds }) {
  return total ? `${before} … ${Math.round((100 * done) / total)}\u00a0%, about ${Math.max(1, Math.round(seconds))}\u00a0s left` : "";
}
