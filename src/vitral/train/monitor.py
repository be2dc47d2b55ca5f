"""Is it learning? What can be seen without labels while a model learns without them, on views of the same validation pictures each time.

N pictures, two views of each, D numbers of an embedding.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F
from torch import Tensor

from vitral.base.errors import ConfigError
from vitral.data.loader import Batch
from vitral.model.classifier import evaluating
from vitral.train.prepare import Setup
from vitral.train.state import random_states, seed_process, set_random_states
from vitral.train.steps import Stepper

LEAST = 8
ROUNDING = 1e-4
"""A spread this small beside the mean is rounding, not information."""
PICTURES = 2048
"""Most validation pictures that are looked at."""


class Monitor:
    def __init__(self, setup: Setup, stepper: Stepper) -> None:
        self.stepper = stepper
        batch, split = setup.config.train.batch_size, setup.data.validation
        if len(split) < LEAST:
            raise ConfigError(f"{len(split)} validation pictures do not show whether it learns", f"set validation so that {LEAST} are left")
        count = min(len(split), PICTURES)
        # Whole batches alone: another size would be another compilation.
        count = max(min(batch, count), count // batch * batch)
        self.loader = setup.view_loader(split.first(count, setup.config.data.split_seed))

    def warm_up(self) -> float:
        """Compile what is looked with; returns the seconds it took."""
        began = time.perf_counter()
        if self.stepper.compiled:
            self._see(next(iter(self.loader.epoch(0))))
            self.stepper.wait()
        return time.perf_counter() - began

    def look(self) -> tuple[dict[str, float], float]:
        """(loss and health, pictures per second)."""
        began, seen = time.perf_counter(), [self._see(batch) for batch in self.loader.epoch(0)]
        loss = torch.stack([each[0] for each in seen]).mean().item()
        first, second, features = (torch.cat([each[place] for each in seen]) for place in (1, 2, 3))
        health = {"loss": loss, **embedding_health(first, second), "feature_rank": effective_rank(features)}
        return health, len(first) / (time.perf_counter() - began)

    @torch.no_grad()
    def _see(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The loss, the embeddings of two views, and the features of the first."""
        stepper, method = self.stepper, self.stepper.method
        assert method is not None
        before = random_states()
        seed_process(0)  # the same directions, the same hidden patches each time; and the run's own numbers stay as they were
        with evaluating(stepper.model), stepper.precision():
            loss = method(stepper.model, batch.images, batch.labels, None, None, None).loss
            one, two = batch.images[:, 0], batch.images[:, 1 % batch.images.shape[1]]
            features = stepper.model(one)
            embeddings = method.embed(stepper.model, one), method.embed(stepper.model, two)
        set_random_states(before)
        return loss, embeddings[0].float(), embeddings[1].float(), features.float()


def embedding_health(first: Tensor, second: Tensor) -> dict[str, float]:
    """Figures of the embeddings (N, D) of two views of each picture."""
    one, two = F.normalize(first - first.mean(0), dim=1), F.normalize(second - second.mean(0), dim=1)
    nearest = (one @ two.T).argmax(1)
    return {
        "effective_rank": effective_rank(first),
        "spread": float(first.std(0).mean()),
        "alignment": float((F.normalize(first, dim=1) - F.normalize(second, dim=1)).square().sum(1).mean()),
        "uniformity": uniformity(F.normalize(first, dim=1)),
        "purity": float((nearest == torch.arange(len(one), device=one.device)).float().mean()),
    }


def effective_rank(values: Tensor) -> float:
    """How many directions the values (N, D) really fill: the exponential of the entropy of the shares of their singular values
    (Roy and Vetterli 2007). Everything in one point has rank 0; what rounding adds to it is no direction."""
    values = values.double()
    mean = values.mean(0)
    covariance = (values - mean).T @ (values - mean) / len(values)
    if not covariance.isfinite().all():
        return 0.0
    spectrum = torch.linalg.eigvalsh(covariance.cpu()).clamp_min(0).sqrt()
    spectrum = spectrum[spectrum > ROUNDING * max(1e-6, float(mean.norm()))]
    shares = spectrum / spectrum.sum()
    return float(torch.exp(-(shares * shares.log()).sum())) if len(shares) else 0.0


def uniformity(unit: Tensor) -> float:
    """The logarithm of the mean of exp(−2 d²) over all pairs of unit vectors (Wang and Isola 2020): 0 in one point, −4 at best."""
    squares = torch.pdist(unit).square()
    return float(torch.logsumexp(-2 * squares, 0) - torch.log(torch.tensor(float(len(squares)))))
