"""Which heads can go: switched off one after another, what the picture needs least first.

K classes, n points of the line, B images to judge by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vitral.base.numbers import to_double
from vitral.base.progress import track
from vitral.look.choice import check_item
from vitral.look.rerun import run, score, single_image
from vitral.look.switch_off import Ablation, Off, edits_for
from vitral.model.tape import Tape

POINTS = 19
"""Most points of the line: for ViT-Ti every second head."""
DRAWS = 3
"""Random orders beside the one by importance: a line that falls as theirs does says nothing of the order."""
BATCH = 16


@dataclass(frozen=True)
class Pruning:
    """What is left of the answer when heads are switched off, the least important first."""

    order: tuple[tuple[int, int], ...]
    """(block, head), the first to go first."""
    counts: np.ndarray
    """(n,): how many are off, from none to all."""
    confidence: np.ndarray
    """(n,): the target's probability on the picture."""
    random: np.ndarray
    """(n,): the same in random order, the mean of some draws."""
    share: np.ndarray | None
    """(n,): of the images to judge by, how many get their label; None without such images."""

    @property
    def half(self) -> int:
        """So many heads can go before the target loses half its probability."""
        low = np.flatnonzero(self.confidence < self.confidence[0] / 2)
        return int(self.counts[low[0] - 1]) if len(low) else int(self.counts[-1])


def prune_heads(
    tape: Tape,
    ablation: Ablation,
    item: int = 0,
    *,
    images: torch.Tensor | None = None,
    labels: Sequence[int] = (),
    points: int = POINTS,
) -> Pruning:
    """Switch heads off in the order of an `ablate` of the same picture; `images` (B, C, H, W) with `labels` are judged along the way.

    Images without labels are judged by the whole model's own answers.
    """
    item = check_item(tape, item)
    image = single_image(tape, item)
    order = least_first(ablation.heads)
    counts = np.unique(np.linspace(0, len(order), min(points, len(order) + 1)).round().astype(int))
    rng = np.random.default_rng(0)
    drawn = [[order[place] for place in rng.permutation(len(order))] for _ in range(DRAWS)]
    confidence, random, share = [], [], []
    if images is not None and not labels:
        with torch.no_grad():
            labels = torch.cat([run(tape, part.to(image)).argmax(dim=1) for part in images.split(BATCH)]).tolist()
    truth = torch.tensor(list(labels))
    for count in track(counts.tolist(), "Removing heads, the least important first"):
        copies = [Off(heads=tuple(each[:count])) for each in (order, *drawn)]
        with torch.no_grad():
            scores = score(tape, run(tape, image[None].expand(len(copies), -1, -1, -1), edits_for(copies)), ablation.target)
            if images is not None:
                edits = edits_for(copies[0])
                answers = torch.cat([run(tape, part.to(image), edits).argmax(dim=1).cpu() for part in images.split(BATCH)])
                share.append(float((answers == truth).float().mean()))
        confidence.append(float(scores[0]))
        random.append(float(to_double(scores[1:]).mean()))
    judged = None if images is None else np.array(share)
    return Pruning(tuple(order), counts, np.array(confidence), np.array(random), judged)


def least_first(heads: np.ndarray) -> list[tuple[int, int]]:
    """(block, head) by what the answer loses without it, the smallest loss first; `heads`: (L, heads), the change of the probability."""
    places = np.argsort(-heads, axis=None, kind="stable")
    return [(int(place) // heads.shape[1], int(place) % heads.shape[1]) for place in places]
