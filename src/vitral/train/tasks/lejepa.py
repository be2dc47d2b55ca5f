"""LeJEPA (Balestriero and LeCun 2025, arXiv 2511.08544): all views of a picture have one embedding, and embeddings are Gaussian.

The pull alone would be satisfied by one embedding for everything. What forbids it is not a teacher, a queue or a stop-gradient but a test:
along random directions, embeddings must be distributed like N(0, 1) (SIGReg, section 4 of the paper). The test of Epps and Pulley compares
the characteristic function of the batch with that of the Gaussian, exp(−t²/2), at a few points t.
B pictures, V views, D numbers of an embedding, S directions, T points.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitral.config import PretrainConfig
from vitral.model.classifier import Classifier
from vitral.train.parallel import everywhere, same_everywhere, world_size
from vitral.train.tasks.projection import Projection
from vitral.train.tasks.unlabelled import Unlabelled

_POINTS, _FARTHEST = 17, 3.0
"""Where characteristic functions are compared: 0 to 3, the negative side being its mirror image."""
FEWEST = 128
"""The statistic grows with the pictures of a batch, the pull does not. In a batch of fewer than these it counts as if it were of so many:
weaker beside the pull, it would give up all directions but the one or two in which views agree best."""


class LeJEPA(Unlabelled):
    def __init__(self, config: PretrainConfig, width: int) -> None:
        super().__init__()
        self.weight, self.global_views, self.directions = config.gaussian_weight, config.global_views, config.directions
        # The test must act on a projection: features that were Gaussian themselves would be worse for everything else.
        self.projection = Projection(width, config.projection_hidden, config.projection)
        self.waves = _Waves()

    def loss(self, model: Classifier, images: Tensor, keep: float | None) -> Tensor:
        features = model(images.flatten(0, 1), keep_patches=keep)  # (B·V, width): such a model has no head
        embeddings = self.projection(features).float().unflatten(0, images.shape[:2])  # (B, V, D)
        target = embeddings[:, : self.global_views].mean(1, keepdim=True)
        pull = (embeddings - target).square().mean()
        weight = self.weight * max(1.0, FEWEST / self.pictures(embeddings))
        return (1 - self.weight) * pull + weight * self.normality(embeddings)

    def normality(self, embeddings: Tensor) -> Tensor:
        """How far the embeddings (B, V, D) of each view are from N(0, 1) along random directions: the statistic of Epps and Pulley."""
        with torch.autocast(embeddings.device.type, enabled=False):
            directions = same_everywhere(torch.randn(embeddings.shape[-1], self.directions, device=embeddings.device))
            real, imaginary = self.waves(embeddings @ (directions / torch.linalg.vector_norm(directions, dim=0)))
            real, imaginary = everywhere(real), everywhere(imaginary)  # (V, S, T)
            distance = (real - self.waves.gaussian).square() + imaginary.square()
            return self.pictures(embeddings) * (distance @ self.waves.weights).mean()

    def pictures(self, embeddings: Tensor) -> int:
        """In the batch: while learning, processes share one; what is only looked at is seen by all of them."""
        return len(embeddings) * (world_size() if torch.is_grad_enabled() else 1)

    def embed(self, model: Classifier, images: Tensor) -> Tensor:
        return self.projection(model(images))

    def parts(self) -> list[nn.Module]:
        return [self.projection, self.waves]


class _Waves(nn.Module):
    """The characteristic function of a batch: the mean of exp(i t x), as its real and its imaginary part."""

    points: Tensor
    gaussian: Tensor
    weights: Tensor

    def __init__(self) -> None:
        super().__init__()
        points = torch.linspace(0, _FARTHEST, _POINTS)
        gaussian = torch.exp(-points.square() / 2)
        # The integral over all t, weighted by the Gaussian, by the trapezoid rule; the negative side counts by doubling.
        trapezoid = torch.full((_POINTS,), 2 * _FARTHEST / (_POINTS - 1))
        trapezoid[[0, -1]] /= 2
        for name, value in (("points", points), ("gaussian", gaussian), ("weights", trapezoid * gaussian)):
            self.register_buffer(name, value, persistent=False)

    def forward(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """(B, V, S) → twice (V, S, T)."""
        angles = values[..., None] * self.points  # (B, V, S, T)
        return angles.cos().mean(0), angles.sin().mean(0)
