"""Switching off heads, blocks and patches: a batch of copies of one picture, each with its own cut, in one pass.

A head is off when its attention weights are zero: it then gives nothing, and rollout no longer counts it. A block is off when its
attention and its MLP add nothing. A patch is off when the pixels of its cell have the mean colour, as
in occlusion; where patches overlap, its neighbours lose these pixels too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vitral.base.errors import UsageError
from vitral.look.choice import start_row
from vitral.look.gradcam import gradcam
from vitral.look.occlusion import cells, edges
from vitral.look.rollout import RunningRollout
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.model.tape import ATTENTION, Edit


@dataclass(frozen=True)
class Cut:
    """What one copy lacks."""

    heads: tuple[tuple[int, int], ...] = ()
    blocks: tuple[int, ...] = ()
    patches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outcome:
    logits: np.ndarray
    """(copies, K)"""
    maps: np.ndarray
    """(copies, h, w): rollout for a transformer, Grad-CAM of `target` for a rival."""
    method: str


def operate(model: Classifier, image: torch.Tensor, cuts: Sequence[Cut], target: int | None = None) -> Outcome:
    """One picture (C, H, W) under each of the cuts."""
    for cut in cuts:
        check_cut(model, cut)
    images = image.repeat(len(cuts), 1, 1, 1)  # (copies, C, H, W)
    rows, columns = cells(model)
    down, across = edges(images.shape[2], rows), edges(images.shape[3], columns)
    for copy, cut in enumerate(cuts):
        for patch in cut.patches:
            row, column = divmod(patch, columns)
            images[copy, :, down[row] : down[row + 1], across[column] : across[column + 1]] = 0
    if not model.config.is_transformer:
        tape = watch(model, images, keep=model.map_names(), gradients=True)
        maps = np.stack([gradcam(tape, item=copy, target=target).grid for copy in range(len(cuts))])
        return Outcome(_numbers(tape.logits), maps, "gradcam")
    running = RunningRollout()
    tape = watch(model, images, keep=["logits"], edits=edits_for(cuts), readers={ATTENTION: running})
    assert running.product is not None
    row, _ = start_row(tape, running.product, "class")  # (copies, T)
    return Outcome(_numbers(tape.logits), _numbers(row[:, tape.prefix :]).reshape(-1, *tape.grid), "rollout")


def edits_for(cuts: Sequence[Cut]) -> dict[str, Edit]:
    """Edits of a batch in which copy i lacks what cuts[i] says."""
    heads: dict[int, list[tuple[int, int | slice]]] = defaultdict(list)
    blocks: dict[int, list[int]] = defaultdict(list)
    for copy, cut in enumerate(cuts):
        for block, head in cut.heads:
            heads[block].append((copy, head))
        for block in cut.blocks:
            heads[block].append((copy, slice(None)))
            blocks[block].append(copy)
    edits: dict[str, Edit] = {f"blocks.{block}.attention.weights": _zero(places) for block, places in heads.items()}
    for block, copies in blocks.items():
        for part in ("attention", "mlp"):
            edits[f"blocks.{block}.{part}.output"] = _zero([(copy, slice(None)) for copy in copies])
    return edits


def check_cut(model: Classifier, cut: Cut) -> None:
    config = model.config
    if not model.config.is_transformer and (cut.heads or cut.blocks):
        raise UsageError(f"a {config.family} has no heads or blocks to switch off", "switch off patches")
    for block, head in cut.heads:
        if not (0 <= block < config.depth and 0 <= head < config.heads):
            raise UsageError(
                f"head {head} of block {block} does not exist", f"use blocks 0 to {config.depth - 1}, heads 0 to {config.heads - 1}"
            )
    for block in cut.blocks:
        if not 0 <= block < config.depth:
            raise UsageError(f"block {block} does not exist", f"this model has blocks 0 to {config.depth - 1}")
    rows, columns = cells(model)
    for patch in cut.patches:
        if not 0 <= patch < rows * columns:
            raise UsageError(f"patch {patch} does not exist", f"this model has patches 0 to {rows * columns - 1}")


def _zero(places: list[tuple[int, int | slice]]) -> Edit:
    def edit(value: torch.Tensor, name: str) -> torch.Tensor:
        value = value.clone()
        for place in places:
            value[place] = 0
        return value

    return edit


def _numbers(value: torch.Tensor) -> np.ndarray:
    return value.detach().double().cpu().numpy()
