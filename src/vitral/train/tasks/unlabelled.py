"""Is it learning? What can be seen without labels while a model learns without them, on views of the same validation pictures each time.

N pictures, two views of each, D numbers of an embedding.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitral.base.errors import ConfigError
from vitral.base.numbers import to_double
from vitral.base.progress import say
from vitral.base.text import counted
from vitral.data.splits.open import open_data
from vitral.model.classifier import Classifier, evaluating
from vitral.train.collapse import collapsed, stopped
from vitral.train.counts import Counts
from vitral.train.ema import local
from vitral.train.prepare import view_loader
from vitral.train.state import random_states, seed_process, set_random_states
from vitral.train.tasks.task import Outcome, Task, Validation

if TYPE_CHECKING:
    from vitral.data.loader import Batch
    from vitral.train.prepare import Setup
    from vitral.train.steps import Stepper

LEAST = 8
NEIGHBOURS = 20
LOOKS = 8
"""In a run, at the least, however few its epochs: a collapse is named when it shows in two of them, so in the first quarter."""
PICTURES = 2048
"""Most validation pictures that are looked at."""


class Unlabelled(Task):
    """A task that learns without labels, from views (B, V, C, H, W), and is validated by what embeddings show."""

    looks = LOOKS

    def loss(self, model: Classifier, images: Tensor, keep: float | None) -> Tensor:
        """Of views (B, V, C, H, W), of each of which the share `keep` of the patches is shown."""
        raise NotImplementedError

    def embed(self, model: Classifier, images: Tensor) -> Tensor:
        """What the loss compares, of images (N, C, H, W): (N, D)."""
        raise NotImplementedError

    def figures(self, images: Tensor) -> dict[str, Tensor]:  # noqa: ARG002
        """What else shows whether it learns, of views (B, V, C, H, W)."""
        return {}

    def losses(
        self, model: Classifier, images: Tensor, labels: Tensor, labels_b: Tensor | None, lam: Tensor | None, keep: float | None
    ) -> Outcome:
        """Labels and what belongs to them stay here."""
        del labels, labels_b, lam
        loss = self.loss(model, images, keep)
        return Outcome(loss, loss.new_zeros(()))

    def journal(self, loss: float, correct: float) -> dict[str, float]:  # noqa: ARG002
        return {"loss": loss}

    # ---- is it learning? -------------------------------------------------------------------------------------------------------

    def open(self, setup: Setup, stepper: Stepper) -> None:  # noqa: ARG002
        self.run, self.preprocess = setup.config, setup.preprocess
        self.first: dict[str, Any] | None = None
        """What the untrained model showed."""
        self._before: dict[str, Any] | None = None
        self._doubt = False
        batch, split = setup.config.train.batch_size, setup.data.validation
        if len(split) < LEAST:
            pictures = len(split) + len(setup.data.train)
            share = math.ceil(100 * LEAST / pictures) / 100
            more = f", or keep more of them for looking: --validation {share:g}" if share <= 0.5 else ""
            few = f"{counted(len(split), 'validation picture')} of {pictures:,} cannot show whether it learns, {LEAST} can"
            raise ConfigError(few, f"add pictures{more}")
        count = min(len(split), PICTURES)
        # Whole batches alone: another size would be another compilation.
        count = max(min(batch, count), count // batch * batch)
        split = split.balanced_subset(count, setup.config.data.split_seed)
        self.held = view_loader(setup, split)
        self.labels: Tensor | None = None
        """Of these images, by their index, where they are asked for; nothing learns from them."""
        if setup.config.pretrain is not None and setup.config.pretrain.online_knn:
            labelled = open_data(setup.config.data, preprocess=setup.preprocess).validation
            label_of = dict(zip(labelled.indices.tolist(), labelled.labels.tolist(), strict=True))
            self.labels = torch.tensor([label_of[index] for index in split.indices.tolist()], device=setup.device)

    def warm_up(self, setup: Setup, stepper: Stepper) -> float:  # noqa: ARG002
        began = time.perf_counter()
        if stepper.compiled:
            self._see(stepper, next(iter(self.held.epoch(0))))
            stepper.wait()
        return time.perf_counter() - began

    def remember(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            self._doubts(line, line["step"])

    def _doubts(self, health: dict[str, Any], step: int) -> str | None:
        """Why the embeddings seem to have collapsed, judged beside the first look and the one before."""
        self.first = self.first or health
        cause = collapsed(self.run, self.first, health, self._before) if step else None
        self._before, self._doubt = health, cause is not None
        return cause

    def validate(self, stepper: Stepper, step: int) -> Validation:
        """Loss and health; `collapsed` says why, when it shows in two looks one after the other."""
        seen, indices = [], []
        for batch in self.held.epoch(0):
            seen.append(self._see(stepper, batch))
            indices.append(batch.indices)
        loss = torch.stack([each[0] for each in seen]).mean().item()
        first, second, features = (torch.cat(column) for column in zip(*(each[1:4] for each in seen), strict=True))
        more = {name: torch.stack([each[4][name] for each in seen]).mean().item() for name in seen[0][4]}
        health: dict[str, Any] = {"loss": loss, **embedding_health(first, second), "feature_rank": feature_rank(features), **more}
        health |= {"feature_spread": _spread(features), "input_spread": max(float(each[5]) for each in seen)}
        health["weight_size"] = _size([value for value in stepper.model.parameters() if value.ndim > 1])
        if self.labels is not None:
            health["online_knn"] = neighbours_agree(features, self.labels[torch.cat(indices)])  # without those that could not be read
        doubted = self._doubt
        if (cause := self._doubts(health, step)) is not None and doubted:
            health["collapsed"] = cause
        figures = {name: value for name, value in health.items() if name != "loss"}
        return Validation(loss, len(first), figures, {"effective_rank": health["effective_rank"]})

    @torch.no_grad()
    def _see(self, stepper: Stepper, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Tensor], Tensor]:
        """The loss, the embeddings of two views, the features of the first, and what the method shows of itself."""
        model, before = stepper.model, random_states()
        seed_process(0)  # the same directions, the same hidden patches each time; and the run's own numbers stay as they were
        with evaluating(model), stepper.precision():
            loss = self.losses(model, batch.images, batch.labels, None, None, None).loss
            one, two = batch.images[:, 0], batch.images[:, 1 % batch.images.shape[1]]
            features, more = model(one), self.figures(batch.images)
            embeddings = self.embed(model, one), self.embed(model, two)
        set_random_states(before)
        return loss, embeddings[0].float(), embeddings[1].float(), features.float(), more, batch.images.float().std(0).mean()

    def review(self, held: Validation, counts: Counts, progress: float, quiet: bool) -> None:  # noqa: ARG002
        """Say that it has collapsed, once, or end the run."""
        if (cause := held.figures.get("collapsed")) is None:
            return
        assert self.run.pretrain is not None
        if self.run.pretrain.on_collapse == "stop":
            raise stopped(cause, counts.step)
        if not counts.warned:
            say(f"warning: the embeddings have collapsed at step {counts.step}: {cause}")
        counts.warned = True


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
