"""Switching off heads, blocks and patches: a batch of copies of one picture, each with its own cut, in one pass.

Heads and blocks are switched off as `look.switch_off` does it. A patch is off when its pixels have the mean colour, as in occlusion;
where patches overlap, its neighbours lose these pixels too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vitral.base.errors import UsageError, out_of_range
from vitral.look.choice import start_row
from vitral.look.gradcam import gradcam
from vitral.look.occlusion import edges, grid_of
from vitral.look.rollout import RunningRollout
from vitral.look.switch_off import Off, edits_for
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.model.tape import ATTENTION


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
    rows, columns = grid_of(model)
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
    tape = watch(
        model,
        images,
        keep=["logits"],
        edits=edits_for([Off(cut.heads, cut.blocks, cut.blocks) for cut in cuts]),
        readers={ATTENTION: running},
    )
    assert running.product is not None
    row, _ = start_row(tape, running.product, "class")  # (copies, T)
    return Outcome(_numbers(tape.logits), _numbers(row[:, tape.prefix :]).reshape(-1, *tape.grid), "rollout")


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
            raise out_of_range("block", block, config.depth)
    rows, columns = grid_of(model)
    for patch in cut.patches:
        if not 0 <= patch < rows * columns:
            raise out_of_range("patch", patch, rows * columns)


def _numbers(value: torch.Tensor) -> np.ndarray:
    return value.detach().double().cpu().numpy()
