"""The story of one picture in one Vision Transformer: the numbers behind its seven steps, from one tape and a few passes more.

A story is a header and sections, packed as a trace is (web/pack.py). Whoever makes the same object elsewhere gets the same page:

header    grid, prefix, tokens, width; patch, stride, image (pixels), channels, stem (a hybrid's)
          patch_start   the patch the story begins with: the one with most contrast in the middle of the picture
          numbers       which of a patch vector's numbers are shown as patterns
          positions     how the model encodes positions, as in ModelConfig; positions_norm: a norm follows
          block, heads  the block that is shown, and which of its heads; head_start; head_width
          reads         what the head reads, as in ModelConfig
          depth         (L + 1) × the most probable [class, probability], the head read after the embedding and after each block
          shuffle       order: which patch is at each position; answer: as in depth (of the whole picture, patches shuffled)
  measured, each of them null or missing where unknown, and then not mentioned:
          head_distance       a head's number → {distance, shuffled, even}: pixels between a patch and what it looks at
          sinks               one per block: {tokens: [[token, share]], norm_ratio, low_contrast} that half of all tokens give 5 even
                              shares or more
          sink_ablation       {patches, target, before, after}: the target's probability when all patches that are sinks in any block
                              are covered
          top_patch_ablation  {count, share, target, before, most, random}: the target's probability when the patches that get most of
                              the last block's attention (together `share` of what patches get), or as many others, are covered
sections  patches (N, D), positions (N, D) where vectors are added, query, key, value (heads, T, d), bias (heads, T, T) where there is
          one, patterns (n, P, P, 3) as bytes

scores = query · key / √d + bias, shares = softmax(scores), mixed = shares · value: the page computes these, as the model did.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch

from vitral.base.numbers import to_double, to_numpy
from vitral.base.picture import Picture
from vitral.base.progress import track
from vitral.draw.tiles import weights_to_grey
from vitral.look.distance import distances, mean_distance
from vitral.look.health import LARGER
from vitral.look.lens import read_out
from vitral.look.maps import patch_edges
from vitral.look.switch_off import without_patches
from vitral.look.watch import watch
from vitral.model.attention import Attention
from vitral.model.classifier import Classifier
from vitral.model.positions import AddPositionalEmbeddings
from vitral.model.tape import ATTENTION, Tape
from vitral.model.vit import ViT
from vitral.web.server.limits import Refusal
from vitral.web.trace import probabilities

_BLOCK = 0
"""The block whose attention is shown with all its numbers: the first, whose tokens the steps before have made."""
_HEADS = 3
"""Of so many heads: the one that looks nearest, the one that looks farthest, and those between."""
PATTERNS = 12
_ANSWERS = 3
SINK = 5.0
"""Times the even share."""
_LARGE = 0.2
"""The share from which on a token that is no patch is spoken of: such tokens are there to be looked at."""
_COVERED = 0.5
"""So much of the patches' attention is covered to see whether a map points to what counts."""
DRAWS = 8
SHORT = 11
"""Bits that are cut off a number's 23: four digits remain, and a third of the bytes goes."""


def measure_story(model: Classifier, picture: Picture) -> tuple[dict[str, Any], dict[str, np.ndarray | bytes]]:
    """Header and sections; what they hold is said above."""
    config = model.config
    if not config.is_transformer:
        raise Refusal(422, f"a {config.family} has no patches that ask each other", "the story is told of Vision Transformers")
    vit = cast(ViT, model)
    seen = _AttentionColumns(config.prefix)
    attention = [f"blocks.{_BLOCK}.attention.{part}" for part in ("query", "key", "value", "weights")]
    tape = watch(model, picture, keep=["patches", "embedding", *attention, *model.map_names()], readers={ATTENTION: seen})
    image = picture.tensor
    contrast = _contrast(image, config.grid)
    order = shuffled_order(len(contrast))
    shuffled = watch(model, picture, keep=[attention[-1]], edits={"patches": lambda value, _: value[:, order]})
    near, after = (mean_distance(each.attention(_BLOCK), config)[0] for each in (tape, shuffled))
    chosen = sorted(np.argsort(near)[np.unique(np.linspace(0, config.heads - 1, min(_HEADS, config.heads)).round().astype(int))].tolist())
    even = float(distances(config).mean())
    vectors = to_numpy(tape["patches"][0].float())  # (N, D)
    numbers = np.argsort(-vectors.var(axis=0))[:PATTERNS].tolist()
    sinks = [_sink(tape, block, columns, contrast) for block, columns in enumerate(seen.columns)]
    header = {
        "grid": list(config.grid),
        "prefix": config.prefix,
        "tokens": config.tokens,
        "width": config.width,
        "patch": list(config.patch_size),
        "stride": list(config.patch_stride),
        "image": list(config.image_size),
        "channels": config.channels,
        "stem": vit.stem is not None,
        "patch_start": _start(contrast, config.grid),
        "numbers": numbers,
        "positions": config.positions,
        "positions_norm": config.embedding_norm,
        "block": _BLOCK,
        "heads": chosen,
        "head_start": max(chosen, key=lambda head: _between(tape.attention(_BLOCK)[0, head], config.prefix)),
        "head_width": config.width // config.heads,
        "reads": config.pool,
        "depth": _depth(model, tape),
        "shuffle": {"order": order, "answer": _answer(model, shuffled.logits[0])},
        "head_distance": {
            str(head): {"distance": round(float(near[head]), 3), "shuffled": round(float(after[head]), 3), "even": round(even, 3)}
            for head in chosen
        },
        "sinks": sinks,
        **_covered(tape, image, sinks, seen.last),
    }
    sections: dict[str, np.ndarray | bytes] = {"patches": shorten(vectors)}
    if isinstance(vit.positions, AddPositionalEmbeddings):
        sections["positions"] = shorten(to_numpy(vit.positions.table[0, vit.positions.prefix :].float()))
    for part, name in zip(("query", "key", "value"), attention, strict=False):
        sections[part] = shorten(to_numpy(tape[name][0, chosen].float()))  # (heads, T, d)
    relative = cast(Attention, vit.blocks[_BLOCK].attention).relative
    if relative is not None:
        sections["bias"] = shorten(to_numpy(relative()[0, chosen].float()))
    if vit.stem is None:
        sections["patterns"] = _patterns(to_numpy(vit.patches.projection.weight.float())[numbers])
    return header, sections


def shuffled_order(count: int) -> list[int]:
    """Which patch is at each position of the shuffled image: the same for every picture."""
    return np.random.default_rng(0).permutation(count).tolist()


def shorten(values: np.ndarray) -> np.ndarray:
    """The nearest float32 with fewer digits, which packs better."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64) + (1 << (SHORT - 1))
    return (bits & ~np.uint64((1 << SHORT) - 1)).astype(np.uint32).view(np.float32)


class _AttentionColumns:
    """What passes: of each block how much every token gets, of the last where its patches and its class token look."""

    def __init__(self, prefix: int) -> None:
        self.prefix, self.columns, self.last = prefix, [], torch.zeros(0)

    def __call__(self, weights: torch.Tensor, _: str) -> None:
        mean = weights[0].float().mean(dim=0).cpu()  # (T, T)
        self.columns.append((to_numpy(mean.mean(dim=0)), to_numpy(mean.median(dim=0).values)))
        self.last = mean


def _contrast(image: torch.Tensor, grid: tuple[int, int]) -> np.ndarray:
    """(N,): how much the pixels of each patch differ."""
    down, across = patch_edges(image.shape[1], grid[0]), patch_edges(image.shape[2], grid[1])
    cells = [image[:, down[r] : down[r + 1], across[c] : across[c + 1]] for r in range(grid[0]) for c in range(grid[1])]
    return np.array([float(cell.float().flatten(1).std(dim=1, correction=0).mean()) for cell in cells])


def _start(contrast: np.ndarray, grid: tuple[int, int]) -> int:
    """The patch with most contrast in the middle half of the picture."""
    rows, columns = np.divmod(np.arange(len(contrast)), grid[1])
    middle = [abs(at - (size - 1) / 2) <= size / 4 for at, size in ((rows, grid[0]), (columns, grid[1]))]
    return int(np.where(middle[0] & middle[1], contrast, -1.0).argmax())


def _between(weights: torch.Tensor, prefix: int) -> float:
    """How much of the patches' attention (T, T) goes to patches other than themselves."""
    patches = weights[prefix:, prefix:]
    return float((patches.sum() - patches.diagonal().sum()) / len(patches))


def _answer(model: Classifier, logits: torch.Tensor) -> list[list[float]]:
    """The most probable classes, [class, probability] each."""
    if not model.config.classes:
        return []
    shares = probabilities(to_numpy(to_double(logits)), model.origin.multi_label)
    return [[int(index), round(float(shares[index]), 6)] for index in np.argsort(-shares)[:_ANSWERS]]


def _depth(model: Classifier, tape: Tape) -> list[list[list[float]]]:
    if not model.config.classes:
        return []
    with torch.no_grad():
        early = [_answer(model, read_out(model, tape[name])[0]) for name in ["embedding", *model.map_names()[:-1]]]
    return [*early, _answer(model, tape.logits[0])]


def _sink(tape: Tape, block: int, columns: tuple[np.ndarray, np.ndarray], contrast: np.ndarray) -> dict[str, Any] | None:
    """The tokens that draw attention whoever asks; null: none does."""
    mean, usual = columns
    sinks = np.flatnonzero(usual >= SINK / len(usual))
    sinks = sinks[(sinks >= tape.prefix) | (mean[sinks] >= _LARGE)]
    if not len(sinks):
        return None
    patches = sinks[sinks >= tape.prefix] - tape.prefix
    names = ["embedding", *tape.model.map_names()]
    lengths = to_numpy(torch.linalg.vector_norm(tape[names[block]][0, tape.prefix :].float(), dim=-1))
    longer = float(lengths[patches].min() / np.median(lengths)) if len(patches) else 0.0
    return {
        "tokens": [[int(token), round(float(mean[token]), 5)] for token in sinks[np.argsort(-mean[sinks])]],
        "norm_ratio": round(longer, 2) if longer >= LARGER else None,
        "low_contrast": bool(len(patches) and (contrast[patches] < np.median(contrast)).all()),
    }


def _covered(tape: Tape, image: torch.Tensor, sinks: list[dict[str, Any] | None], last: torch.Tensor) -> dict[str, Any]:
    """What the answer loses without the sinks; and without the patches that the last map likes best, beside as many others."""
    result: dict[str, Any] = {"sink_ablation": None, "top_patch_ablation": None}
    if tape.config.classes < 2:
        return result
    sink_patches = sorted({token - tape.prefix for sink in sinks if sink for token, _ in sink["tokens"] if token >= tape.prefix})
    top, share, others = _top_patches(tape, last)
    covers = [cover for cover in (sink_patches, top, *others) if cover]
    target = int(tape.logits[0].argmax())

    def confidence(logits: torch.Tensor) -> float:
        return round(float(probabilities(to_numpy(to_double(logits)), tape.origin.multi_label)[target]), 5)

    before, left = confidence(tape.logits[0]), []
    for cover in track(covers, "Covering patches"):  # one by one, so that others are let through
        left.append(confidence(watch(tape.model, without_patches(tape.model, image, cover), keep=["logits"]).logits[0]))
    if sink_patches:
        result["sink_ablation"] = {"patches": len(sink_patches), "target": target, "before": before, "after": left.pop(0)}
    if top:
        most, random = left[0], round(float(np.mean(left[1:])), 5)
        change = {"target": target, "before": before, "most": most, "random": random}
        result["top_patch_ablation"] = {"count": len(top), "share": share, **change}
    return result


def _top_patches(tape: Tape, last: torch.Tensor) -> tuple[list[int], float, list[list[int]]]:
    """The fewest patches that hold half of the last map (T, T), how much they hold, and as many others, drawn several times."""
    config = tape.config
    if config.pool not in ("class", "mean"):
        return [], 0.0, []
    row = to_numpy((last[0] if config.pool == "class" else last[config.prefix :].mean(dim=0))[config.prefix :])
    ranked = np.argsort(-row)
    held = np.cumsum(row[ranked]) / row.sum()
    count = int(np.argmax(held >= _COVERED)) + 1
    if len(row) < 2 * count:
        return [], 0.0, []
    rng = np.random.default_rng(0)
    draws = [rng.choice(ranked[count:], count, replace=False).tolist() for _ in range(DRAWS)]
    return ranked[:count].tolist(), round(float(held[count - 1]), 4), draws


def _patterns(weights: np.ndarray) -> bytes:
    """(n, C, P, P) → bytes (n, P, P, 3): grey is zero, each scaled by its own largest weight; colours where there are three."""
    shown = weights if weights.shape[1] == 3 else weights.mean(axis=1, keepdims=True).repeat(3, axis=1)
    return weights_to_grey(shown).transpose(0, 2, 3, 1).tobytes()
