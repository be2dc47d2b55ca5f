"""Switching off heads, blocks and patches: a batch of copies of one picture, each with its own cut, in one pass.

Heads and blocks are switched off as `look.switch_off` does it. A patch is off when its pixels have the mean colour, as in occlusion;
where patches overlap, its neighbours lose these pixels too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vitral.base.errors import UsageError, out_of_range
from vitral.base.numbers import to_double, to_numpy
from vitral.look.choice import start_row
from vitral.look.gradcam import gradcam
from vitral.look.maps import patch_edges
from vitral.look.occlusion import grid_of
from vitral.look.rollout import RunningRollout
from vitral.look.switch_off import Off, edits_for
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.model.tape import ATTENTION, Edit


@dataclass(frozen=True)
class Cut:
    """What one copy lacks."""

    heads: tuple[tuple[int, int], ...] = ()
    blocks: tuple[int, ...] = ()
    patches: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Cut:
        """As the page's address has it: h3.1,b5,p17."""
        found: dict[str, set[tuple[int, ...]]] = {"h": set(), "b": set(), "p": set()}
        for part in filter(None, text.split(",")):
            if not re.fullmatch(r"h\d{1,4}\.\d{1,4}|[bp]\d{1,6}", part, re.ASCII):
                raise UsageError(f"{part[:20]!r} is no part that can be switched off", "name parts as in h3.1,b5,p17")
            found[part[0]].add(tuple(int(number) for number in part[1:].split(".")))
        heads = tuple((block, head) for block, head in sorted(found["h"]))
        return cls(heads, tuple(block for (block,) in sorted(found["b"])), tuple(patch for (patch,) in sorted(found["p"])))


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
    images = torch.stack([without_patches(model, image, cut.patches) for cut in cuts])  # (copies, C, H, W)
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


def without_patches(model: Classifier, image: torch.Tensor, patches: Sequence[int]) -> torch.Tensor:
    """A copy of the image (C, H, W) in which these patches have the mean colour."""
    rows, columns = grid_of(model)
    down, across = patch_edges(image.shape[1], rows), patch_edges(image.shape[2], columns)
    image = image.clone()
    for patch in patches:
        row, column = divmod(patch, columns)
        image[:, down[row] : down[row + 1], across[column] : across[column + 1]] = 0
    return image


def edits_of(cut: Cut) -> dict[str, Edit] | None:
    """What makes a model the one without these heads and blocks, for any watching of it."""
    return edits_for(Off(cut.heads, cut.blocks, cut.blocks)) or None


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
    return to_numpy(to_double(value))
