"""Heads of an audit, each fitted in seconds to something whose map is then known: to a planted trigger, to answers dealt out at random."""

from __future__ import annotations

import numpy as np
import torch

from vitral.base.errors import UsageError
from vitral.look.synthetic import with_triggers
from vitral.model.classifier import Classifier, evaluating
from vitral.train.probe import Linear, fit_linear, last_layer

AT_A_TIME = 16


def logits_of(model: Classifier, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), evaluating(model):
        return torch.cat([model(some).float() for some in images.split(AT_A_TIME)])


def head_for_trigger(model: Classifier, bare: torch.Tensor, size: int, grid: tuple[int, int], seed: int) -> tuple[Classifier, float]:
    """A model of two classes, without and with the trigger, and how often it is right on pictures it did not learn from."""
    triggered = [with_triggers(model, bare, size, grid, seed + 100 + turn).images for turn in range(2)]
    features = torch.cat([_pooled(model, part) for part in (bare, *triggered)])
    labels = torch.cat([torch.zeros(len(bare)), torch.ones(2 * len(bare))]).long().to(features.device)
    held = torch.arange(len(bare)).repeat(3) % 4 == 3  # a picture is learnt from with and without, or neither
    probe = fit_linear((features[~held], labels[~held]), None, 2)
    accuracy = float((probe(features[held]) == labels[held]).float().mean())
    return _with_head(model, probe, 2, seed), accuracy


def head_for_labels(model: Classifier, images: torch.Tensor, labels: np.ndarray, classes: int, seed: int) -> Classifier:
    features = _pooled(model, images)
    return _with_head(model, fit_linear((features, torch.from_numpy(labels).to(features.device)), None, classes), classes, seed)


def _pooled(model: Classifier, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), evaluating(model):
        return torch.cat([model.pooled(some).float() for some in images.split(AT_A_TIME)])


def _with_head(model: Classifier, probe: Linear, classes: int, seed: int) -> Classifier:
    made = model.with_head(classes, seed)
    layer = last_layer(made)
    if layer.weight.shape != probe.weight.shape:
        raise UsageError("the head is more than one linear layer", "this test is left out")
    probe.write_into(layer)
    return made.eval()
