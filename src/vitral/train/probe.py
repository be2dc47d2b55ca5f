"""What frozen features are worth: a linear probe and nearest neighbours, both solved on the device, both settled on validation.

A probe is also where a head starts well: a random one sends random gradients into good features, and with few images they do not
recover. N images, D features, K classes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.base.errors import ConfigError
from vitral.base.numbers import to_numpy
from vitral.base.progress import progress
from vitral.config.formats import Precision
from vitral.cost.precision import Answering, worth_bf16
from vitral.data.loader import Loader
from vitral.data.splits.split import Split
from vitral.model.classifier import Classifier
from vitral.train.evaluate import evaluation_loader
from vitral.train.multi_label import average_precision, mean_without_nan
from vitral.train.optim import is_head
from vitral.train.prepare import Setup

STRENGTHS = (0.3, 0.1, 0.03, 0.01, 0.003)
"""Weights of the squared size of the probe beside its mean loss, on features of spread 1; validation chooses, without it the middle."""
STEP, _WEAKEST = 0.1, 1e-7
"""Where the last is the best, weaker ones are tried, each this much of the one before, down to this."""
TRIED_ON = 2040
"""Images for which they are as written (Flowers-102, ten a class and mirrored); more images need less of them, in proportion."""
ITERATIONS = 100
NEIGHBOURS = (1, 3, 5, 10, 20)
CHUNK = 512
"""Images whose neighbours are looked for at a time."""

Labelled = tuple[Tensor, Tensor]
"""Features (N, D) and labels: (N,), or (N, K) of 0 and 1 where an image may have several."""
_Option = TypeVar("_Option", "Linear", "Neighbours")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Linear:
    """A linear probe; it reads features as they are."""

    weight: Tensor
    """(K, D)."""
    bias: Tensor
    """(K,)."""
    strength: float

    def __call__(self, features: Tensor) -> Tensor:
        """The answers (N,)."""
        return self.scores(features).argmax(dim=1)

    def scores(self, features: Tensor) -> Tensor:
        """The logits (N, K)."""
        return features @ self.weight.T + self.bias

    @torch.no_grad()
    def write_into(self, layer: nn.Linear) -> None:
        layer.weight.copy_(self.weight)
        layer.bias.copy_(self.bias)

    def __str__(self) -> str:
        return f"strength {self.strength:g}"


@dataclass(frozen=True)
class Neighbours:
    """The classes of the k nearest by cosine."""

    bank: Tensor
    """(N, D): centred, of spread 1, then of length 1."""
    votes: Tensor
    """(N, K): one-hot labels."""
    mean: Tensor
    spread: Tensor
    k: int

    def __call__(self, features: Tensor) -> Tensor:
        """The answers (N,)."""
        return self.scores(features).argmax(dim=1)

    def scores(self, features: Tensor) -> Tensor:
        """The votes for each class (N, K)."""
        return torch.cat([self._count(part) for part in features.split(CHUNK)])

    def _count(self, features: Tensor) -> Tensor:
        near, who = (F.normalize((features - self.mean) / self.spread, dim=1) @ self.bank.T).topk(self.k, dim=1)  # (b, k)
        # Each neighbour's vote counts a little more the nearer it is, which settles ties.
        return ((1 + 1e-3 * near)[..., None] * self.votes[who]).sum(dim=1)

    def __str__(self) -> str:
        return f"k={self.k}"


def fit_linear(train: Labelled, judge: Labelled | None, classes: int, strength: float | None = None) -> Linear:
    """The linear probe of that strength which is right most often on `judge`, or of the given one."""
    features, labels = train
    mean, spread = _moments(features)
    scaled = (features - mean) / spread

    def of(strength: float) -> Linear:
        weight, bias = solve(scaled, labels, classes, strength)
        return Linear(weight / spread, bias - (weight / spread) @ mean, strength)

    if strength is not None:
        return of(strength)
    scale = TRIED_ON / len(features)
    if judge is None:
        return of(STRENGTHS[len(STRENGTHS) // 2] * scale)
    return settle(lambda strength: (probe := of(strength), _quality(probe.scores(judge[0]), judge[1])), scale)


def settle(attempt: Callable[[float], tuple[Made, float]], scale: float) -> Made:
    """What `attempt` makes of the strength at which it finds most quality; of equal ones the strongest."""
    tried = [attempt(each * scale) for each in STRENGTHS]
    weakest = STRENGTHS[-1] * scale
    # Features of a model that has learnt little ask for far weaker ones: on until the weakest is not the best.
    while (best := max(tried, key=lambda made: made[1])) is tried[-1] and weakest > _WEAKEST * scale:
        weakest *= STEP
        tried.append(attempt(weakest))
    return best[0]


def fit_neighbours(train: Labelled, judge: Labelled | None, classes: int, numbers: tuple[int, ...] = NEIGHBOURS) -> Neighbours:
    """Nearest neighbours, as many of `numbers` as are right most often on `judge`."""
    features, labels = train
    mean, spread = _moments(features)
    bank, votes = F.normalize((features - mean) / spread, dim=1), labels if labels.ndim == 2 else F.one_hot(labels, classes).float()
    return _best([Neighbours(bank, votes, mean, spread, k) for k in numbers if k <= len(features)], judge)


def solve(features: Tensor, labels: Tensor, classes: int, strength: float) -> tuple[Tensor, Tensor]:
    """Logistic regression: the weights (K, D) and biases (K,) with the least mean loss + strength / 2 · |weights|²."""
    weight = torch.zeros(classes, features.shape[1], device=features.device, requires_grad=True)
    bias = torch.zeros(classes, device=features.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        logits = features @ weight.T + bias
        # Of several labels each class is a question of its own: the sum over them, as cross-entropy is of all classes too.
        multi_label = labels.ndim == 2
        loss = F.binary_cross_entropy_with_logits(logits, labels) * classes if multi_label else F.cross_entropy(logits, labels)
        loss = loss + strength / 2 * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]
    return weight.detach(), bias.detach()


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Each feature is centred and brought to spread 1: even with one image a class that did better than one spread for all."""
    return features.mean(dim=0), features.std(dim=0, correction=int(len(features) > 1)).clamp_min(1e-6)


def _best(options: list[_Option], judge: Labelled | None) -> _Option:
    """The first of those that are right most often."""
    if judge is None:
        return options[0]
    return max(options, key=lambda option: _quality(option.scores(judge[0]), judge[1]))


def _quality(scores: Tensor, labels: Tensor) -> float:
    """Share of right answers, or the mean average precision of several labels."""
    if labels.ndim == 1:
        return scores.argmax(dim=1).eq(labels).float().mean().item()
    return mean_without_nan(average_precision(to_numpy(scores), to_numpy(labels) > 0))


@torch.no_grad()
def read_features(
    model: Classifier, loader: Loader, *, blocks: int = 1, mirrored: bool = False, precision: Precision = "fp32", quiet: bool = False
) -> Labelled:
    """What the head would read of every image (N, D), of the last `blocks` side by side, and the labels (N,), on the loader's device."""
    model = model.to(loader.device).eval()
    dtype = next(model.parameters()).dtype
    answer = Answering(functools.partial(model.pooled, blocks=blocks), loader.device, precision, worth=worth_bf16(model), answers=False)
    features, labels = [], []
    with progress(f"Features of {loader.split.name}", len(loader), quiet) as bar:
        for batch in loader.epoch(0):
            for images in (batch.images, batch.images.flip(-1)) if mirrored else (batch.images,):
                features.append(answer(images.to(dtype)).float())
                labels.append(batch.labels)
            bar.advance(1)
    return torch.cat(features), torch.cat(labels)


# ---- a head that starts as a probe ---------------------------------------------------------------------------------------------


def start_head(setup: Setup, quiet: bool = False) -> None:
    """Give the model's head the weights of a linear probe of its own frozen features, before anything else moves."""
    layer, config = last_layer(setup.model), setup.config

    def read(split: Split) -> Labelled:
        """Each image, and mirrored where that keeps its meaning."""
        loader = evaluation_loader(split, setup.preprocess, setup.device, config.train.batch_size, config.data.workers)
        return read_features(setup.model, loader, mirrored=split.flip, quiet=quiet)

    judge = read(setup.data.validation) if len(setup.data.validation) else None
    fit_linear(read(setup.data.train), judge, layer.out_features).write_into(layer)


def last_layer(model: nn.Module) -> nn.Linear:
    """The one linear layer that makes logits of the pooled vector."""
    heads = [module for name, module in model.named_modules() if isinstance(module, nn.Linear) and is_head(name + ".")]
    if len(heads) != 1 or heads[0].bias is None:
        raise ConfigError("head_start = probe needs a head of one linear layer with a bias", "set head_start = as-is")
    return heads[0]
