"""What patch features say over several pictures at once: colours on one basis, and patches like a chosen one.

Colours of one picture alone say nothing about another's: here all share their three principal directions, so that like parts of different
pictures have like colours. B pictures, an h × w grid, D numbers per patch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from vitral.base.numbers import to_numpy
from vitral.draw.style import squares
from vitral.look.similarity import as_colours, principal
from vitral.model.classifier import Classifier, evaluating

SIDE = 96


@dataclass(frozen=True)
class JointColours:
    colours: np.ndarray
    """(B, h, w, 3) in [0, 1], one basis for all."""
    explained: np.ndarray
    """(3,): share of the variance that each direction holds."""
    scores: np.ndarray
    """(B · h · w, 3): what the colours are made of."""

    def images(self) -> list[Image.Image]:
        return [enlarge((image * 255).round().astype(np.uint8)) for image in self.colours]


@torch.no_grad()
def patch_features(model: Classifier, images: torch.Tensor) -> torch.Tensor:
    """(B, D, h, w) after the last block."""
    with evaluating(model):
        return model.features(images, [-1])[0].float()


def joint_colours(model: Classifier, images: torch.Tensor, like: JointColours | None = None) -> JointColours:
    """Patches of like colour are alike, also in different pictures. `like`: the colours of another model, or another moment of its
    training, for the same pictures. Which direction is red, and which way it grows, means nothing: they are turned to agree with those."""
    maps = to_numpy(patch_features(model, images).permute(0, 2, 3, 1))  # (B, h, w, D)
    scores, _, explained = principal(maps.reshape(-1, maps.shape[-1]), 3)
    if like is not None:
        left, _, right = np.linalg.svd(scores.T @ like.scores, full_matrices=False)  # the nearest rotation (orthogonal Procrustes)
        scores = scores @ left @ right
    return JointColours(as_colours(scores).reshape(*maps.shape[:3], 3), explained, scores)


def similar_patches(model: Classifier, images: torch.Tensor, point: tuple[float, float] = (0.5, 0.5)) -> np.ndarray:
    """(B, h, w): cosine of every patch to the one at `place` (rows, columns; shares of the sides) of the same picture."""
    maps = F.normalize(patch_features(model, images), dim=1)  # (B, D, h, w)
    row, column = (min(int(share * side), side - 1) for share, side in zip(point, maps.shape[2:], strict=True))
    return to_numpy(torch.einsum("bdhw,bd->bhw", maps, maps[:, :, row, column]))


def enlarge(pixels: np.ndarray) -> Image.Image:
    """uint8 (h, w) or (h, w, 3) with hard edges: a patch stays a square."""
    return Image.fromarray(squares(pixels, SIDE))
