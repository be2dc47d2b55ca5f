"""A head that starts as a linear probe: solved on frozen features before anything else moves.

A random head sends random gradients into good features, and with few pictures they do not recover. N pictures, D features, K classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitral.base.errors import ConfigError
from vitral.base.progress import progress
from vitral.data.loader import Loader
from vitral.data.split import Split
from vitral.model.classifier import Classifier
from vitral.train.optim import is_head
from vitral.train.prepare import Setup, evaluation_loader

STRENGTHS = (0.3, 0.1, 0.03, 0.01, 0.003)
"""Weights of the squared size of the probe beside its mean loss, on features of spread 1; validation chooses."""
ITERATIONS = 100


def start_head(setup: Setup, quiet: bool = False) -> None:
    """Give the model's head the weights of a linear probe of its own frozen features."""
    layer = last_layer(setup.model)
    features, labels = _features(setup, setup.data.train, quiet)
    mean, spread = features.mean(dim=0), features.std(dim=0).clamp_min(1e-6)
    probes = [solve((features - mean) / spread, labels, layer.out_features, strength) for strength in STRENGTHS]
    best = probes[len(probes) // 2]
    if len(setup.data.validation):
        judge, wanted = _features(setup, setup.data.validation, quiet)
        judge = (judge - mean) / spread
        best = max(probes, key=lambda probe: (judge @ probe[0].T + probe[1]).argmax(dim=1).eq(wanted).float().mean().item())
    weight = best[0] / spread  # the head reads features as they are
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(best[1] - weight @ mean)


def last_layer(model: nn.Module) -> nn.Linear:
    """The one linear layer that makes logits of the pooled vector."""
    heads = [module for name, module in model.named_modules() if isinstance(module, nn.Linear) and is_head(name + ".")]
    if len(heads) != 1 or heads[0].bias is None:
        raise ConfigError("head_start = probe needs a head of one linear layer with a bias", "set head_start = as-is")
    return heads[0]


def solve(features: Tensor, labels: Tensor, classes: int, strength: float) -> tuple[Tensor, Tensor]:
    """Logistic regression: the weights (K, D) and biases (K,) with the least mean loss + strength / 2 · |weights|²."""
    weight = torch.zeros(classes, features.shape[1], device=features.device, requires_grad=True)
    bias = torch.zeros(classes, device=features.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(features @ weight.T + bias, labels) + strength / 2 * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]
    return weight.detach(), bias.detach()


def _features(setup: Setup, split: Split, quiet: bool) -> tuple[Tensor, Tensor]:
    """Each picture, and mirrored where that keeps its meaning."""
    config = setup.config
    loader = evaluation_loader(split, setup.preprocess, setup.device, config.train.batch_size, config.data.workers)
    return read_features(setup.model, loader, mirrored=split.flip, quiet=quiet)


@torch.no_grad()
def read_features(model: Classifier, loader: Loader, *, mirrored: bool = False, quiet: bool = False) -> tuple[Tensor, Tensor]:
    """What the head would read of every picture (N, D), and the labels (N,), on the loader's device."""
    model = model.to(loader.device).eval()
    dtype = next(model.parameters()).dtype
    features, labels = [], []
    with progress(f"Features of {loader.split.name}", len(loader), quiet) as bar:
        for batch in loader.epoch(0):
            for images in (batch.images, batch.images.flip(-1)) if mirrored else (batch.images,):
                features.append(model.pooled(images.to(dtype)).float())
                labels.append(batch.labels)
            bar.advance(1)
    return torch.cat(features), torch.cat(labels)
