"""How much each head matters for one picture, and how many can go: what `look.switch_off` and `look.removal` say, for the page."""

from __future__ import annotations

from typing import Any

import torch

from vitral.base.picture import Picture
from vitral.look.switch_off import ablate, prune_heads
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.web.trace import rounded

FEWEST = 2
"""A share of fewer pictures is none."""


def importance(
    model: Classifier, picture: Picture, target: int | None, labelled: tuple[torch.Tensor, list[int]] | None, beside: list[torch.Tensor]
) -> dict[str, Any]:
    """Every head off once, then heads off one after another. Judged on `labelled` images, else by the answers on those `beside`."""
    tape = watch(model, picture, keep=["logits"])
    heads = ablate(tape, target=target)
    images, labels = labelled or (None, [])
    if labelled is None and len(beside) >= FEWEST and model.config.classes > 1 and not model.origin.multi_label:
        images = torch.stack(beside)
        labels = watch(model, images, keep=["logits"]).logits.argmax(dim=1).tolist()
    fall = prune_heads(tape, heads, images=images, labels=labels)
    return {
        "heads": rounded(heads.heads),
        "parts": rounded(heads.parts),
        "whole": heads.whole,
        "target": heads.target,
        "unit": heads.unit,
        "order": [f"h{block}.{head}" for block, head in fall.order],
        "counts": fall.counts.tolist(),
        "confidence": [round(value, 5) for value in fall.confidence.tolist()],
        "random": [round(value, 5) for value in fall.random.tolist()],
        "share": None if fall.share is None else [round(value, 4) for value in fall.share.tolist()],
        "half": fall.half,
        "judged": 0 if images is None else len(images),
        "labelled": labelled is not None,
    }
