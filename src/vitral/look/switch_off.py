"""Ablation: switch off one head, or a block's attention, MLP or both, and see what the model loses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vitral.base.progress import track
from vitral.draw.switch_off import ablation_figure
from vitral.look.choice import Start, check_item, find_target, need_transformer, unused
from vitral.look.rerun import alone, run, score, score_unit
from vitral.model.tape import Edit, Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = ("attention", "MLP", "both")


@dataclass(frozen=True)
class Ablation:
    """Change of the target's probability when a part is switched off: below zero, the model needed it."""

    heads: np.ndarray
    """(L, heads)"""
    parts: np.ndarray
    """(L, 3): the block's attention, its MLP, both."""
    whole: float
    """The probability with everything on."""
    target: int
    name: str
    unit: str
    note: str = ""

    def numbers(self) -> dict[str, Any]:
        return {"heads": self.heads, "parts": self.parts, "whole": self.whole}

    def draw(self) -> Figure:
        return ablation_figure(self.heads, self.parts, PARTS, f"{self.name}: {self.unit} {self.whole:.3f} with everything on", self.unit)


def ablate(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class") -> Ablation:
    """Every head and every part of every block in turn, for one picture; one pass per block."""
    need_transformer(tape, "ablation")
    item = check_item(tape, item)
    target = find_target(tape, item, target)
    depth, count = tape.config.depth, tape.config.heads
    heads, parts = np.zeros((depth, count)), np.zeros((depth, len(PARTS)))
    image = alone(tape, item)
    whole = float(_scores(tape, image, target, 1, {})[0])
    for block in track(range(depth), "Switching off heads and blocks"):
        scores = _scores(tape, image, target, count + len(PARTS), switches(block, count))
        heads[block], parts[block] = scores[:count] - whole, scores[count:] - whole
    return Ablation(heads, parts, whole, target, tape.origin.class_name(target), score_unit(tape), unused("ablate", start=start))


def switches(block: int, heads: int) -> dict[str, Edit]:
    """Edits for a batch of copies of one picture: copy h lacks head h, the next lack attention, MLP, both."""

    def head_off(value: torch.Tensor, name: str) -> torch.Tensor:  # (B, heads, T, d)
        value = value.clone()
        index = torch.arange(heads, device=value.device)
        value[index, index] = 0
        return value

    def off(*copies: int) -> Edit:
        def edit(value: torch.Tensor, name: str) -> torch.Tensor:  # (B, T, D)
            value = value.clone()
            value[list(copies)] = 0
            return value

        return edit

    return {
        f"blocks.{block}.attention.heads": head_off,
        f"blocks.{block}.attention.output": off(heads, heads + 2),
        f"blocks.{block}.mlp.output": off(heads + 1, heads + 2),
    }


def _scores(tape: Tape, image: torch.Tensor, target: int, copies: int, edits: dict[str, Edit]) -> np.ndarray:
    images = image[None].expand(copies, -1, -1, -1)
    with torch.no_grad():
        return score(run(tape, images, edits), target).double().cpu().numpy()
