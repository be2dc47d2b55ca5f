// What is said where it is seen, and only where it was measured on this picture in this model.

import { percent } from "../core/dom.js";
import { className } from "../views/explain.js";

const NEAR = 0.6; // of the distance of even attention: what looks nearer is called local

/** Why a head of the first block looks near; null where it does not. */
export function localNote(story, head) {
  const found = story.head_distance?.[head];
  if (!found || found.distance >= NEAR * found.even) return null;
  const pixels = (value) => `${value.toFixed(value < 10 ? 1 : 0)}\u00a0pixels`;
  const lost = (found.shuffled - found.distance) / (found.even - found.distance);
  const why =
    lost < 0.25
      ? `With the patches shuffled it is ${pixels(found.shuffled)}: so it is the place that decides, not what a patch shows. In the first block a patch knows nothing but itself, and what lies beside it is the first thing to learn.`
      : lost > 0.6
        ? `With the patches shuffled it is ${pixels(found.shuffled)}: so it is what patches show that decides, and neighbours often show the same.`
        : `With the patches shuffled it is ${pixels(found.shuffled)}: so both the place and what a patch shows decide.`;
  return { title: "Why it looks so near", text: `Among the patches, this head looks ${pixels(found.distance)} away on average; looking everywhere alike would make it ${pixels(found.even)}. ${why}` };
}

/** Tokens before the patches that get much of the attention, whoever asks. */
export function prefixNote(story, model, block) {
  const found = story.sinks?.[block]?.tokens.filter(([token]) => token < story.prefix) ?? [];
  if (!found.length) return null;
  const names = found.map(([token, share]) => `the ${model.prefix[token]} gets ${percent(share)}`).join(", ");
  const empty = block === 0 ? " It has seen nothing of the picture yet: in this block it is the same for every picture. Attention must go somewhere, and here it can be parked." : "";
  return { title: "Where attention is parked", text: `Whoever asks in block ${block}, ${names} of all attention (mean of the heads).${empty}` };
}

/** Patches that get much of the attention, whoever asks. */
export function sinkNote(story, model, block) {
  const sink = story.sinks?.[block];
  const found = sink?.tokens.filter(([token]) => token >= story.prefix).map(([token, share]) => [token - story.prefix, share]) ?? [];
  if (!found.length) return null;
  const [rows, columns] = story.grid;
  const side = (at, size) => at === 0 || at === size - 1;
  const places = found.map(([patch]) => [Math.floor(patch / columns), patch % columns]);
  const kind = places.every(([row, column]) => side(row, rows) && side(column, columns)) ? "corner" : places.every(([row, column]) => side(row, rows) || side(column, columns)) ? "edge" : "spot";
  const several = found.length > 1;
  const share = found.reduce((sum, [, part]) => sum + part, 0);
  const longer = sink.norm_ratio ? ` ${several ? "Their vectors are" : "Its vector is"} at least ${sink.norm_ratio.toFixed(sink.norm_ratio < 10 ? 1 : 0)} times as long as the usual patch's.` : "";
  const plain = sink.low_contrast ? " There is less to see there than in most patches." : "";
  const covered = story.sink_ablation;
  const test = covered ? ` Covering ${covered.patches > 1 ? `all ${covered.patches} such patches` : "it"} takes ${className(model, covered.target)} from ${percent(covered.before)} to ${percent(covered.after)}.` : "";
  return {
    title: `Bright ${kind}${several ? "s" : ""}`,
    text: `${several ? `${found.length} patches get` : "One patch gets"} ${percent(share)} of all attention in this block, whoever asks.${plain}${longer}${test} Such attention sinks are a place to park attention, not a thing that was seen.`,
  };
}

/** Whether the last map points to what counts; null where it was not measured. */
export function reasonNote(story, model) {
  const found = story.top_patch_ablation;
  if (!found) return null;
  const lost = found.before - found.most;
  const chance = found.before - found.random;
  const name = className(model, found.target);
  const patches = found.count > 1 ? `the ${found.count} patches that get ${percent(found.share)} of what patches get here` : `the patch that gets ${percent(found.share)} of what patches get here`;
  const measured = `Cover ${patches}, and ${name} goes from ${percent(found.before)} to ${percent(found.most)}; cover as many others at random, to ${percent(found.random)} on average.`;
  const verdict = lost > Math.max(0.02, 2 * chance) ? "On this picture the map points to what counts, but it took the covering to know." : "On this picture the map does not point to what counts.";
  return { title: "Why a map is not a reason", text: `It says where the model looked, not what for, and it is the same for every class. ${measured} ${verdict}` };
}
