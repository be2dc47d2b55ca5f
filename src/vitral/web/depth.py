"""A picture at every depth of a model: what the head would say there, and what each patch holds. Packed for the browser.

L blocks, N patches, D numbers per token, K classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vitral.base.picture import Picture
from vitral.look.lens import depth_names, lens
from vitral.look.similarity import patch_tokens
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.model.tape import Edit
from vitral.web.pack import pack
from vitral.web.server.limits import Refusal
from vitral.web.trace import LISTED, shown_picture

_LARGEST = 50_000_000
"""Depths × patches × classes that are read out at once."""
_LINES = 4
"""Classes that are followed through the depth."""
_BESIDE = 320
"""Pixels of the longer side of a picture that is shown beside another."""


def pack_depth(
    model: Classifier, picture: Picture, target: int | None, edits: dict[str, Edit] | None = None, compression: int = 1
) -> bytes:
    """The lens: the head read after the embedding and after each block, of the picture and of each patch."""
    config = model.config
    if not config.classes:
        raise Refusal(422, "this model has no head to read", "look at its similarity instead")
    if config.is_transformer and (config.depth + 1) * config.grid[0] * config.grid[1] * config.classes > _LARGEST:
        raise Refusal(422, "this model has too many patches and classes to read all of them here", "vitral lens reads them")
    names = depth_names(model) if config.is_transformer else []
    reading = lens(watch(model, picture, keep=["logits", *names], edits=edits), target=target)
    shares = reading.probabilities  # (L + 1, K)
    patches = reading.patches.reshape(len(shares), -1, reading.patches.shape[-1])  # (L + 1, N, K)
    each = reading.patch_probabilities.reshape(patches.shape)
    best = patches.argmax(axis=-1)
    header = {
        "top": [_ranked(row) for row in shares],
        "settled": reading.decided_at,
        "target": reading.target,
        "lines": [[index, [round(float(share), 5) for share in shares[:, index]]] for index in followed(shares, reading.target)],
        "grid": list(reading.patches.shape[1:3]),
    }
    sections: dict[str, np.ndarray | bytes] = {
        "answers": best.astype(np.uint16),
        "confidence": _byte(np.take_along_axis(each, best[..., None], axis=-1)[..., 0]),
        "target": _byte(each[..., reading.target]),
    }
    return pack(header, sections, compression)


def followed(shares: np.ndarray, target: int) -> list[int]:
    """The classes to follow: the target, the final answer, then those that lead somewhere on the way, the longest leader first."""
    leaders = shares.argmax(axis=-1)
    counts = {int(index): int((leaders == index).sum()) for index in leaders}
    by_time = sorted(counts, key=lambda index: (-counts[index], index))
    return list(dict.fromkeys([target, int(leaders[-1]), *by_time]))[:_LINES]


def pack_features(model: Classifier, picture: Picture, most: int, edits: dict[str, Edit] | None = None, compression: int = 1) -> bytes:
    """The patches' tokens after each block, as directions: eight bits a number. Of many numbers, fewer blocks, evenly chosen."""
    names = model.map_names()
    tape = watch(model, picture, keep=["logits", *names], edits=edits)
    sizes = [tape[name][0].numel() for name in names]
    blocks = spread(len(names), most // max(1, sum(sizes) // len(sizes)))
    grids: list[list[int]] = []
    sections: dict[str, np.ndarray | bytes] = {}
    for block in blocks:
        tokens = patch_tokens(tape, names[block])  # (h, w, D)
        grids.append(list(tokens.shape[:2]))
        sections[f"block-{block}"] = directions(tokens.reshape(-1, tokens.shape[-1]))
    sections["picture"], kind = shown_picture(picture, _BESIDE)
    return pack({"blocks": blocks, "grids": grids, "of": len(names), "kind": kind}, sections, compression)


def directions(tokens: np.ndarray) -> np.ndarray:
    """(N, D) → int8: each row divided by its largest number. Its length is lost, which a cosine does not ask for."""
    top = np.maximum(np.abs(tokens).max(axis=-1, keepdims=True), 1e-30)
    return np.rint(tokens / top * 127).astype(np.int8)


def spread(count: int, most: int) -> list[int]:
    """At most `most` of `count` blocks, at even distances, the last one always among them."""
    chosen = max(1, min(count, most))
    return sorted({count - 1 - round(index * count / chosen) for index in range(chosen)})


def _ranked(shares: np.ndarray) -> list[list[Any]]:
    return [[int(index), round(float(shares[index]), 5)] for index in np.argsort(-shares)[:LISTED]]


def _byte(shares: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(shares, 0, 1) * 255).astype(np.uint8)
