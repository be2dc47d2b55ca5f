"""Cutting into patches and projecting equals a convolution."""

import pytest
import torch

from vitral.model.patches import PatchEmbedding


@pytest.mark.parametrize(("patch", "step"), [((4, 4), (4, 4)), ((2, 4), (2, 4)), ((4, 4), (2, 2)), ((8, 4), (4, 2)), ((3, 3), (2, 2))])
def test_equals_a_convolution(patch, step):
    torch.manual_seed(0)
    embedding = PatchEmbedding(3, 5, patch, step)
    images = torch.randn(2, 3, 8, 16)
    top, left = ((p - s) // 2 for p, s in zip(patch, step, strict=True))
    bottom, right = (p - s - (p - s) // 2 for p, s in zip(patch, step, strict=True))
    maps = embedding.projection(torch.nn.functional.pad(images, (left, right, top, bottom)))
    assert maps.shape[-2:] == (8 // step[0], 16 // step[1])
    assert torch.allclose(embedding(images), maps.flatten(2).transpose(1, 2), atol=1e-6)


def test_the_sizes_that_report_r0_names():
    embedding = PatchEmbedding(3, 256, (16, 16), (16, 16))
    assert embedding(torch.zeros(1, 3, 128, 128)).shape == (1, 64, 256)
