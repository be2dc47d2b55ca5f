// Where numbers come from: the local server, or the page itself when it was exported. Both answer the same questions.

import { byId } from "./dom.js";
import { LiveModel, LivePictures, decodeWithin } from "./live.js";
import { partsOf } from "./state.js";
import { Telling } from "./telling.js";
import { Trace, unpack } from "./trace.js";

class Refused extends Error {
  constructor(text, hint = "", status = 0) {
    super(text);
    Object.assign(this, { hint, status });
  }
}

export async function openSource() {
  const inside = document.getElementById("vitral-session");
  if (!inside) return new ServerSource(await ask("/api/session").then((answer) => answer.json()));
  const session = JSON.parse(inside.textContent);
  return session.runs ? new LiveSource(session) : new PageSource(session);
}

/** Answers are remembered: the same question is asked once. */
class Source {
  constructor(session) {
    this.session = session;
    this.answers = new Map();
  }

  once(key, make) {
    if (!this.answers.has(key)) {
      const answer = make().catch((error) => {
        this.answers.delete(key);
        throw error;
      });
      this.answers.set(key, answer);
      if (this.answers.size > 400) this.answers.delete(this.answers.keys().next().value);
    }
    return this.answers.get(key);
  }

  /** Traces are large: the last few are kept. `off`: of the model without these parts. */
  trace(model, picture, off = new Set()) {
    const traces = [...this.answers.keys()].filter((key) => key.startsWith("trace "));
    if (traces.length > 8) this.answers.delete(traces[0]);
    return this.once(`trace ${model} ${picture} ${partsOf(off)}`, () => this.makeTrace(model, picture, off));
  }
}

class ServerSource extends Source {
  live = true;

  async makeTrace(model, picture, off) {
    const answer = await ask(`/api/models/${model}/pictures/${picture}/trace${off.size ? `?off=${partsOf(off)}` : ""}`);
    return Trace.open(new Uint8Array(await answer.arrayBuffer()), this.session.models[model]);
  }

  map(model, picture, method, target, off, signal) {
    const query = new URLSearchParams({ method, ...(target === null ? {} : { target }), ...(off.size ? { off: partsOf(off) } : {}) });
    return this.once(`map ${model} ${picture} ${query}`, async () => (await ask(`/api/models/${model}/pictures/${picture}/map?${query}`, { signal })).json());
  }

  story(model, picture, signal) {
    return this.once(`story ${model} ${picture}`, async () => Telling.open(new Uint8Array(await (await ask(`/api/models/${model}/pictures/${picture}/story`, { signal })).arrayBuffer())));
  }

  /** How far the server is with what takes long. */
  async work() {
    return (await ask("/api/work")).json();
  }

  surgery(model, picture, off, target) {
    const parts = [...off].sort();
    const body = {
      heads: parts.filter((part) => part[0] === "h").map((part) => part.slice(1).split(".").map(Number)),
      blocks: parts.filter((part) => part[0] === "b").map((part) => Number(part.slice(1))),
      patches: parts.filter((part) => part[0] === "p").map((part) => Number(part.slice(1))),
      target,
    };
    const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    return this.once(`cut ${model} ${picture} ${options.body}`, async () => (await ask(`/api/models/${model}/pictures/${picture}/surgery`, options)).json());
  }

  /** One picture at every depth (depth, features) or at every snapshot of a training (film), unpacked. */
  packed(part, model, picture, { target = null, off = new Set() } = {}, signal) {
    const query = new URLSearchParams({ ...(target === null ? {} : { target }), ...(off.size ? { off: partsOf(off) } : {}) });
    return this.once(`${part} ${model} ${picture} ${query}`, async () => {
      const answer = await ask(`/api/models/${model}/pictures/${picture}/${part}?${query}`, { signal });
      return unpack(new Uint8Array(await answer.arrayBuffer()));
    });
  }

  importance(model, picture, target, signal) {
    const query = target === null ? "" : `?target=${target}`;
    return this.once(`importance ${model} ${picture} ${query}`, async () => (await ask(`/api/models/${model}/pictures/${picture}/importance${query}`, { signal })).json());
  }

  figures(model) {
    return this.once(`figures ${model}`, async () => (await ask(`/api/models/${model}/figures`)).json());
  }

  async upload(file) {
    if (file.size > this.session.limits.upload) throw new Refused("this picture is too large", `at most ${Math.round(this.session.limits.upload / 2 ** 20)} MiB`);
    const options = { method: "POST", headers: { "content-type": file.type || "application/octet-stream" }, body: file };
    return (await ask(`/api/pictures?name=${encodeURIComponent((file.name || "picture").slice(0, 100))}`, options)).json();
  }
}

class PageSource extends Source {
  live = false;

  /** Of a model without a part the page knows the answer; its attention was not computed. */
  async makeTrace(model, picture, off) {
    if (!off.size) return Trace.open(inlined(`trace-${model}-${picture}`), this.session.models[model]);
    const { rows } = await this.surgery(model, picture, off);
    return (await this.trace(model, picture)).answering(rows);
  }

  story(model, picture) {
    return this.once(`story ${model} ${picture}`, async () => Telling.open(inlined(`story-${model}-${picture}`)));
  }

  extras(model, picture) {
    return this.once(`extras ${model} ${picture}`, async () => (await unpack(inlined(`extras-${model}-${picture}`))).header);
  }

  async map(model, picture, method, target) {
    const { maps, top } = await this.extras(model, picture);
    const found = maps[`${method}/${method === "rollout" ? "" : target ?? top[0]}`];
    if (!found) throw new Refused("this page holds maps for the most probable classes only", "choose one of the first three (for occlusion the first), or run vitral explore");
    return found;
  }

  async surgery(model, picture, off) {
    const { surgery } = await this.extras(model, picture);
    const found = off.size === 1 ? surgery[[...off][0]] : null;
    if (!found) throw new Refused("this was not computed when the page was made", "single heads and single blocks were");
    return found;
  }

  /** Computed for the whole model and the predicted class. */
  packed(part, model, picture) {
    return this.once(`${part} ${model} ${picture}`, async () => unpack(inlined(`${part}-${model}-${picture}`)));
  }

  async importance(model, picture) {
    return (await this.extras(model, picture)).importance;
  }

  async figures(model) {
    const { header } = await this.once("figures", () => unpack(inlined("figures")));
    return header.figures[model];
  }

  async upload() {
    throw new Refused("an exported page shows its own pictures only", "run vitral explore to open others");
  }
}

/** A page that holds its models and runs them: it answers for any picture and any parts switched off. */
class LiveSource extends PageSource {
  live = true;
  runs = true;

  constructor(session) {
    super(session);
    const kernel = unpack(inlined("kernel")).then(({ sections }) => sections.kernel);
    this.models = session.models.map((facts, index) => new LiveModel(inlined(`model-${index}`), kernel, facts));
    this.pictures = new LivePictures(session.limits);
    for (const { picture, kind } of session.pictures) this.pictures.blobs.set(picture, new Blob([inlined(`picture-${picture}`)], { type: kind }));
    window.vitral = { run: (blob) => this.run(blob), source: this };
  }

  /** For scripts: a picture's logits in the first model, and the names of its classes. */
  async run(blob) {
    const [model] = this.session.models;
    const logits = await this.models[0].logits(await decodeWithin(blob, this.session.limits));
    return { logits: Array.from(logits), labels: Array.from({ length: model.classes }, (_, index) => model.names[index] ?? `class ${index}`) };
  }

  async makeTrace(model, picture, off) {
    return this.models[model].trace(await this.pictures.get(picture), off);
  }

  async map(model, picture, method, target, off, signal) {
    const trace = await this.trace(model, picture, off);
    if (method === "rollout") return this.models[model].rolloutMap(trace);
    const carried = off?.size ? null : this.session.models[model].carried?.[picture]?.[method];
    const found = carried?.find((map) => target === null || map.target === target);
    if (found) return found;
    if (method !== "occlusion") throw new Refused("this page does not compute gradients", "run vitral explore for this map");
    const make = async () => this.models[model].occlusion(await this.pictures.get(picture), trace, target, off, signal, (work) => this.started(work));
    return this.once(`map ${model} ${picture} ${target} ${partsOf(off)}`, make);
  }

  packed(part, model, picture, { target = null, off = new Set() } = {}) {
    const make = async () => this.models[model][part](await this.pictures.get(picture), off, target);
    return this.once(`${part} ${model} ${picture} ${target} ${partsOf(off)}`, make);
  }

  story(model, picture) {
    const make = async () => {
      const { header, sections } = await this.models[model].story(await this.pictures.get(picture));
      return new Telling(header, sections);
    };
    return this.once(`story ${model} ${picture}`, make);
  }

  importance(model, picture, target, signal) {
    const make = async () => {
      const trace = await this.trace(model, picture);
      return this.models[model].importance(await this.pictures.get(picture), trace, target, signal, (work) => this.started(work));
    };
    return this.once(`importance ${model} ${picture} ${target}`, make);
  }

  started(work) {
    return (this.long = work);
  }

  async work() {
    return this.long ?? {};
  }

  async surgery(model, picture, off, target) {
    const [before, after] = [await this.trace(model, picture), await this.trace(model, picture, off)];
    return this.models[model].surgery(before, after, target);
  }

  upload(file) {
    return this.pictures.add(file, file.name || "picture");
  }

  /** The models' own proofs: how far the worst logit is from Python's. */
  async check() {
    return Math.max(...(await Promise.all(this.models.map((model) => model.check()))));
  }
}

async function ask(address, options) {
  let answer;
  try {
    answer = await fetch(address, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lost();
    throw new Refused("the server does not answer", "is vitral explore still running?");
  }
  if (answer.ok) return answer;
  const reason = await answer.json().catch(() => ({}));
  throw new Refused(reason.error ?? `the server answered ${answer.status}`, reason.hint ?? "", answer.status);
}

/** Show that the server is gone, for as long as it is. */
function lost() {
  const sign = byId("lost");
  if (!sign.hidden) return;
  sign.hidden = false;
  const again = setInterval(async () => {
    try {
      await fetch("/api/work", { credentials: "same-origin" });
    } catch {
      return;
    }
    clearInterval(again);
    sign.hidden = true;
    document.dispatchEvent(new Event("vitral-found"));
  }, 1500);
}

/** The bytes of a data block of the page, in base 85 with , and . in place of < and &. */
function inlined(id) {
  const block = document.getElementById(id);
  if (!block) throw new Refused("this page does not hold that picture", "choose one of those above");
  const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%.()*+-;,=>?@^_`{|}~";
  const values = new Uint8Array(128);
  for (let index = 0; index < 85; index++) values[digits.charCodeAt(index)] = index;
  const text = block.textContent;
  const bytes = new Uint8Array((text.length / 5) * 4);
  const view = new DataView(bytes.buffer);
  for (let index = 0; index < text.length; index += 5) {
    let number = 0;
    for (let at = index; at < index + 5; at++) number = number * 85 + values[text.charCodeAt(at)];
    view.setUint32((index / 5) * 4, number);
  }
  return bytes.subarray(0, Number(block.dataset.bytes)); // the last group may have been filled up
}
