"""Maps over the pictures of a test: what spoke for an answer and, where it was wrong, for the truth.

The one place that does it, for every report and for whoever wants to look at the worst. `Answers` says which pictures teach most
(`notable`, `by_class`) and which classes to ask about (`disputed`), `picture` opens one, and each comes back as an `Explained`, which
knows its file and draws itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image

from vitral.base.errors import VitralError
from vitral.base.progress import track
from vitral.draw.heatmap import Heatmap
from vitral.draw.overlay import enlarge
from vitral.draw.sheet import clipped_overlay
from vitral.look.method import RECORDS, call, watch_for
from vitral.look.sheet import mode_of
from vitral.look.watch import open_pictures
from vitral.model.classifier import Classifier
from vitral.run.answers import Answers

TILE = 224
"""Pixels of the longer side of a tile."""


@dataclass(frozen=True)
class Explained:
    """One picture of a test."""

    position: int
    """Among the answers."""
    path: str
    """Its file, or what errors call it."""
    correct: bool
    heats: tuple[Heatmap, ...]
    """What speaks for the answer; then, where that is wrong, for the truth. `target` is the class."""
    mode: str = "bicubic"
    verdict: str = ""
    """What an audit of the model said of the method; empty: there was none."""

    def picture(self, size: int = TILE) -> Image.Image:
        assert self.heats[0].original is not None
        return enlarge(self.heats[0].original, size)

    def overlays(self, size: int = TILE) -> list[Image.Image]:
        """Of each map, as sheets show them: colours up to the map's 97th percentile."""
        return [clipped_overlay(heat, self.mode, size)[0] for heat in self.heats]


def usual_method(model: Classifier) -> str:
    """What explains a class best for its price: one backward pass."""
    return "relevance" if model.config.is_transformer else "gradcam"


def explain(
    model: Classifier,
    answers: Answers,
    positions: Iterable[int],
    picture: Callable[[int], Any],
    method: str | None = None,
    verdicts: Mapping[str, str] | None = None,
) -> dict[int, Explained]:
    """Each of the positions that can be opened, explained; those that cannot are left out.

    `picture` opens the one at a position: a path, a PIL image, or whatever `vitral.watch` takes. One at a time, so that memory does not
    grow with their number. `verdicts`: what an audit said of each method.
    """
    record = RECORDS[method or usual_method(model)]
    verdict = (verdicts or {}).get(record.name, "")
    explained: dict[int, Explained] = {}
    for position in track([int(position) for position in positions], "Maps over the pictures"):
        classes = answers.disputed(position)
        if not all(0 <= target < model.config.classes for target in classes):
            continue  # answers of another model
        try:
            opened = open_pictures(model, [picture(position)])
        except (OSError, VitralError):  # moved, deleted, or no picture any more
            continue
        tape = watch_for(model, opened, [record])
        heats = tuple(call(record, tape, target=target) for target in classes)
        path = answers.paths[position] if answers.paths else ""
        explained[position] = Explained(position, path, bool(answers.right[position]), heats, mode_of(tape), verdict)
    return explained
