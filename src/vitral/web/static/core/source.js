// Where answers come from: the local server, the page itself when it was exported, or the models in it. All take the same questions:
// a name of the table in web/answers.py, with the options model, picture, method, target and off (a set of parts).

import { byId } from "./dom.js";
import { partsOf } from "./state.js";
import { Trace, unpack } from "./trace.js";
import { LiveModel, LivePictures, decodeWithin } from "../in_browser/model.js";
import { StoryData } from "../story/data.js";

class Refused extends Error {
  constructor(text, hint = "", status = 0) {
    super(text);
    Object.assign(this, { hint, status });
  }
}

export async function openSource() {
  const inside = document.getElementById("vitral-session");
  if (!inside) return new Server(await request("/api/session").then((answer) => answer.json()));
  const session = JSON.parse(inside.textContent);
  return session.mode === "in-browser" ? new InBrowser(session) : new Exported(session);
}

const ALL_ON = new Set();
const TRACES = 9; // traces are large: the last few are remembered
const ANSWERS = 400;

class Source {
  constructor(session) {
    this.session = session;
    this.answers = new Map();
  }

  /** Whether there is an answer for any picture and any parts off; an exported page has some of them only. */
  get computes() {
    return this.session.mode !== "exported";
  }

  /** Whether the page holds its models and runs them. */
  get inBrowser() {
    return this.session.mode === "in-browser";
  }

  /** The answer to a question, remembered. A trace, a story and a map come as such, importance as its numbers, any other as { header, sections }. */
  ask(what, { model, picture = null, method = null, target = null, off = ALL_ON, signal } = {}) {
    const question = { what, model, picture, method, target, off };
    const key = addressOf(question);
    if (!this.answers.has(key)) {
      if (what === "trace") this.forget((each) => each.includes("/trace"), TRACES);
      this.forget(() => true, ANSWERS);
      const answer = this.answer(question, signal).catch((error) => {
        this.answers.delete(key);
        throw error;
      });
      this.answers.set(key, answer);
    }
    return this.answers.get(key);
  }

  /** Make room for one more of such answers: the oldest goes. */
  forget(such, most) {
    const keys = [...this.answers.keys()].filter(such);
    if (keys.length >= most) this.answers.delete(keys[0]);
  }

  open({ what, model }, bytes) {
    return unpack(bytes).then((answer) => opened(what, answer, this.session.models[model]));
  }

  /** How far the long work is that runs now: { what, done, total, seconds }. */
  async work() {
    return {};
  }
}

/** `models/0/pictures/KEY/map?method=gradcam&target=3`, as vitral.web.answers.Question has it. */
function addressOf({ what, model, picture, method, target, off }) {
  const options = Object.entries({ method, off: partsOf(off) || null, target }).filter(([, value]) => value !== null);
  return `models/${model}/${picture === null ? "" : `pictures/${picture}/`}${what}${options.length ? `?${new URLSearchParams(options)}` : ""}`;
}

function opened(what, { header, sections }, facts) {
  if (what === "trace") return Trace.open({ header, sections }, facts);
  if (what === "story") return new StoryData(header, sections);
  if (what === "map") return { ...header, values: sections.values };
  return what === "importance" ? header : { header, sections };
}

class Server extends Source {
  async answer(question, signal) {
    const answer = await request(`/api/${addressOf(question)}`, { signal });
    return this.open(question, new Uint8Array(await answer.arrayBuffer()));
  }

  async work() {
    return (await request("/api/work")).json();
  }

  async upload(file) {
    if (file.size > this.session.limits.upload) throw new Refused("this picture is too large", `at most ${Math.round(this.session.limits.upload / 2 ** 20)} MiB`);
    const options = { method: "POST", headers: { "content-type": file.type || "application/octet-stream" }, body: file };
    return (await request(`/api/pictures?name=${encodeURIComponent((file.name || "picture").slice(0, 100))}`, options)).json();
  }
}

class Exported extends Source {
  /** What the file has: of the classes, the asked one or the most probable one, else the answer that knows no class. */
  async answer(question) {
    const { what, model, picture, target, off } = question;
    if (off.size) return this.without(question);
    const first = what === "map" && target === null ? (await this.ask("trace", { model, picture })).order[0] ?? null : target;
    const block = [first, null].map((each) => document.getElementById(addressOf({ ...question, target: each }))).find(Boolean);
    if (block) return this.open(question, decoded(block));
    throw what === "map" ? new Refused("this page holds maps for the most probable classes only", "choose one of the first three (for occlusion the first), or run vitral explore") : new Refused("this page does not hold that picture", "choose one of those above");
  }

  /** Answer and rollout without one head or one block; the attention of such a model is not in the file. */
  async without({ what, model, picture, off }) {
    const all = await this.ask("without-each", { model, picture }).catch(() => null);
    const index = off.size === 1 && all ? all.header.parts.indexOf(partsOf(off)) : -1;
    if (index < 0) throw new Refused("this was not computed when the page was made", "single heads and single blocks were");
    const part = (values) => values.subarray((index * values.length) / all.header.parts.length, ((index + 1) * values.length) / all.header.parts.length);
    const { classes, probabilities, rollouts } = all.sections;
    if (what === "trace") return (await this.ask("trace", { model, picture })).answering(part(classes), part(probabilities));
    return { ...(await this.ask("map", { model, picture, method: "rollout" })), values: part(rollouts) };
  }

  async upload() {
    throw new Refused("an exported page shows its own pictures only", "run vitral explore to open others");
  }
}

/** A page that holds its models and runs them: it answers for any picture and any parts switched off. */
class InBrowser extends Exported {
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

  async answer(question, signal) {
    const { what, model, picture, method, target, off } = question;
    if (what === "figures") return super.answer(question);
    const carried = off.size ? null : this.session.models[model].carried?.[picture]?.[method];
    if (carried && (target === null || carried.includes(target))) return super.answer({ ...question, target: target ?? carried[0] });
    if (what === "map" && !["rollout", "occlusion"].includes(method)) throw new Refused("this page does not compute gradients", "run vitral explore for this map");
    const trace = ["map", "importance"].includes(what) ? await this.ask("trace", { model, picture, off }) : null;
    const long = { signal, trace, started: (work) => (this.long = work) };
    return this.models[model].answer(await this.pictures.get(picture), question, long);
  }

  async work() {
    return this.long ?? {};
  }

  upload(file) {
    return this.pictures.add(file, file.name || "picture");
  }

  /** The models' own proofs: how far the worst logit is from Python's. */
  async check() {
    return Math.max(...(await Promise.all(this.models.map((model) => model.check()))));
  }
}

async function request(address, options) {
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

function inlined(id) {
  return decoded(document.getElementById(id));
}

/** The bytes of a data block of the page, in base 85 with , and . in place of < and &. */
function decoded(block) {
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
