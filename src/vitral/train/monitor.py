"""Is it learning? What can be seen without labels while a model learns without them, on views of the same validation pictures each time.

N pictures, two views of each, D numbers of an embedding.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitral.base.errors import ConfigError
from vitral.base.numbers import to_double, to_numpy
from vitral.base.progress import say
from vitral.base.text import counted
from vitral.data.loader import Batch
from vitral.data.splits.open import open_data
from vitral.model.classifier import evaluating
from vitral.train.collapse import collapsed, stopped
from vitral.train.ema import local
from vitral.train.prepare import Setup
from vitral.train.state import random_states, seed_process, set_random_states
from vitral.train.steps import Stepper
from vitral.train.tasks.mae import MAE
from vitral.train.tasks.task import Method

LEAST = 8
NEIGHBOURS = 20
LOOKS = 8
"""In a run, at the least, however few its epochs: a collapse is named when it shows in two of them, so in the first quarter."""
PICTURES = 2048
"""Most validation pictures that are looked at."""


class Monitor:
    def __init__(self, setup: Setup, stepper: Stepper) -> None:
        self.stepper, self.run, self._doubt = stepper, setup.config, False
        self.preprocess = setup.preprocess
        self.first: dict[str, float] | None = None
        """What the untrained model showed."""
        self._before: dict[str, float] | None = None
        batch, split = setup.config.train.batch_size, setup.data.validation
        if len(split) < LEAST:
            pictures = len(split) + len(setup.data.train)
            share = math.ceil(100 * LEAST / pictures) / 100
            more = f", or keep more of them for looking: --validation {share:g}" if share <= 0.5 else ""
            said = f"{counted(len(split), 'validation picture')} of {pictures:,} cannot show whether it learns, {LEAST} can"
            raise ConfigError(said, f"add pictures{more}")
        count = min(len(split), PICTURES)
        # Whole batches alone: another size would be another compilation.
        count = max(min(batch, count), count // batch * batch)
        split = split.balanced_subset(count, setup.config.data.split_seed)
        self.loader = setup.view_loader(split)
        self.labels: Tensor | None = None
        """Of these pictures, by their places, where they are asked for; nothing learns from them."""
        if setup.config.pretrain is not None and setup.config.pretrain.online_knn:
            known = open_data(setup.config.data, preprocess=setup.preprocess).validation
            of = dict(zip(known.indices.tolist(), known.labels.tolist(), strict=True))
            self.labels = torch.tensor([of[index] for index in split.indices.tolist()], device=setup.device)

    def warm_up(self) -> float:
        """Compile what is looked with; returns the seconds it took."""
        began = time.perf_counter()
        if self.stepper.compiled:
            self._see(next(iter(self.loader.epoch(0))))
            self.stepper.wait()
        return time.perf_counter() - began

    def remember(self, journal: list[dict[str, Any]], step: int) -> None:
        """A run that is gone on with from `step`: what the untrained model showed stands in its first line; what was written after that
        step is to come once more."""
        seen = [line for line in journal if line.get("split") == "validation" and line["step"] <= step]
        for line in seen:
            self._doubts(line, line["step"])

    def _doubts(self, health: dict[str, Any], step: int) -> str | None:
        """Why the embeddings seem to have collapsed, judged beside the first look and the one before."""
        self.first = self.first or health
        cause = collapsed(self.run, self.first, health, self._before) if step else None
        self._before, self._doubt = health, cause is not None
        return cause

    def warn(self, cause: str | None, step: int, warned: bool) -> bool:
        """Say that it has collapsed, once, or end the run; returns whether it has been said."""
        if cause is None:
            return warned
        assert self.run.pretrain is not None
        if self.run.pretrain.on_collapse == "stop":
            raise stopped(cause, step)
        if not warned:
            say(f"warning: the embeddings have collapsed at step {step}: {cause}")
        return True

    @torch.no_grad()
    def rebuilt(self, count: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """What a masked autoencoder was shown (hidden patches NaN), what it made of it, the pictures: (B, H, W, C) in [0, 1]; None: another
        method."""
        method, model = self.stepper.method, self.stepper.model
        if not isinstance(method, MAE):
            return None
        images = next(iter(self.loader.epoch(0))).images[:count, 0]
        with evaluating(model), self.stepper.inside():
            shown, made = method.pictures(model, images)
        mean, std = (torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (self.preprocess.mean, self.preprocess.std))
        parts = (shown * std + mean, made * std + mean, images * std + mean)
        return tuple(to_numpy(part.float().permute(0, 2, 3, 1)) for part in parts)  # type: ignore[return-value]

    def look(self, step: int) -> tuple[dict[str, Any], float]:
        """(loss and health, pictures per second); `collapsed` says why, when it shows in two looks one after the other."""
        began, seen, places = time.perf_counter(), [], []
        for batch in self.loader.epoch(0):
            seen.append(self._see(batch))
            places.append(batch.indices)
        loss = torch.stack([each[0] for each in seen]).mean().item()
        first, second, features = (torch.cat(column) for column in zip(*(each[1:4] for each in seen), strict=True))
        more = {name: torch.stack([each[4][name] for each in seen]).mean().item() for name in seen[0][4]}
        health: dict[str, Any] = {"loss": loss, **embedding_health(first, second), "feature_rank": feature_rank(features), **more}
        health |= {"feature_spread": _spread(features), "input_spread": max(float(each[5]) for each in seen)}
        health["weight_size"] = _size([value for value in self.stepper.model.parameters() if value.ndim > 1])
        if self.labels is not None:
            health["online_knn"] = neighbours_agree(features, self.labels[torch.cat(places)])  # without those that could not be read
        doubted = self._doubt
        if (cause := self._doubts(health, step)) is not None and doubted:
            health["collapsed"] = cause
        return health, len(first) / (time.perf_counter() - began)

    @torch.no_grad()
    def _see(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Tensor], Tensor]:
        """The loss, the embeddings of two views, the features of the first, and what the method shows of itself."""
        stepper, method = self.stepper, self.stepper.method
        assert isinstance(method, Method)
        before = random_states()
        seed_process(0)  # the same directions, the same hidden patches each time; and the run's own numbers stay as they were
        with evaluating(stepper.model), stepper.precision():
            loss = method(stepper.model, batch.images, batch.labels, None, None, None).loss
            one, two = batch.images[:, 0], batch.images[:, 1 % batch.images.shape[1]]
            features, more = stepper.model(one), method.figures(batch.images)
            embeddings = method.embed(stepper.model, one), method.embed(stepper.model, two)
        set_random_states(before)
        return loss, embeddings[0].float(), embeddings[1].float(), features.float(), more, batch.images.float().std(0).mean()


def embedding_health(first: Tensor, second: Tensor) -> dict[str, float]:
    """Figures of the embeddings (N, D) of two views of each picture."""
    one, two = F.normalize(first - first.mean(0), dim=1), F.normalize(second - second.mean(0), dim=1)
    nearest = (one @ two.T).argmax(1)
    return {
        "effective_rank": effective_rank(first),
        "spread": _spread(first),
        "alignment": float((F.normalize(first, dim=1) - F.normalize(second, dim=1)).square().sum(1).mean()),
        "uniformity": uniformity(F.normalize(first, dim=1)),
        "purity": float((nearest == torch.arange(len(one), device=one.device)).float().mean()),
    }


def effective_rank(embeddings: Tensor) -> float:
    """How many directions the embeddings (N, D) fill beside the one that all have in common: the exponential of the entropy of their
    energy by direction, less one. In one point it is 0, whatever noise is left around it."""
    embeddings = to_double(embeddings)
    energy = _eigenvalues(embeddings.T @ embeddings)
    shares = energy / energy.sum().clamp_min(1e-300)
    return float(torch.exp(-(shares * shares.clamp_min(1e-300).log()).sum())) - 1 if len(energy) else 0.0


def feature_rank(features: Tensor) -> float:
    """How many directions features (N, D) fill around their mean: the exponential of the entropy of the shares of their singular values
    (Roy and Vetterli 2007)."""
    centred = to_double(features) - to_double(features).mean(0)
    spectrum = _eigenvalues(centred.T @ centred).sqrt()
    shares = spectrum[spectrum > 0] / spectrum.sum()
    return float(torch.exp(-(shares * shares.log()).sum())) if len(shares) else 0.0


def _eigenvalues(matrix: Tensor) -> Tensor:
    """Of a symmetric matrix; none where it is not finite."""
    return torch.linalg.eigvalsh(matrix).clamp_min(0) if matrix.isfinite().all() else torch.zeros(0)


def neighbours_agree(features: Tensor, labels: Tensor) -> float:
    """Share of pictures whose nearest neighbours among the others (by cosine, centred) mostly have their label."""
    unit = F.normalize(features - features.mean(0), dim=1)
    likeness = unit @ unit.T
    likeness.fill_diagonal_(-2)
    near = labels[likeness.topk(min(NEIGHBOURS, len(labels) - 1), dim=1).indices]  # (N, k)
    return float((near.mode(dim=1).values == labels).float().mean())


def _spread(values: Tensor) -> float:
    return float(values.std(0).mean())


def _size(weights: list[Tensor]) -> float:
    """Root of the mean square over all."""
    return (sum(float(local(value).square().sum()) for value in weights) / sum(value.numel() for value in weights)) ** 0.5


def uniformity(unit: Tensor) -> float:
    """The logarithm of the mean of exp(−2 d²) over all pairs of unit vectors (Wang and Isola 2020): 0 in one point, −4 at best."""
    squares = torch.pdist(unit.cpu() if unit.is_mps else unit).square()  # Apple's GPU has no kernel for it (pytorch#195268)
    return float(torch.logsumexp(-2 * squares, 0) - torch.log(torch.tensor(float(len(squares)))))
