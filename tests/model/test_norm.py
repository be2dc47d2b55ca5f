"""LayerNorm and RMSNorm, written out."""

import pytest
import torch

from vitral.model.norm import make_norm


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norms_written_out(kind):
    x = torch.randn(3, 5, 16) * 4 + 2
    norm = make_norm(kind, 16, 1e-3)
    centred = x - x.mean(-1, keepdim=True) if kind == "layer" else x
    assert torch.allclose(norm(x), centred * (centred.square().mean(-1, keepdim=True) + 1e-3).rsqrt(), atol=1e-5)
