"""Colours of a run's snapshots: those of the end, which the rows before it are turned to."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.build import create
from vitral.look.joint import joint_colours, patch_features
from vitral.study import learning


def test_rows_are_turned_to_agree_with_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier model has the same features with their axes mixed up: the sheet shows no change, in the colours of the end."""
    torch.manual_seed(1)
    early, final = create("tiny", classes=0), create("tiny", classes=0)
    images = torch.randn(2, 3, 32, 32)
    turned = torch.linalg.qr(torch.randn(final.config.width, final.config.width))[0]
    ends = patch_features(final, images)
    begins = -torch.einsum("bdhw,de->behw", ends, turned)
    monkeypatch.setattr("vitral.look.joint.patch_features", lambda model, _: ends if model is final else begins)
    alone = joint_colours(final, images).colours
    assert not np.allclose(joint_colours(early, images).colours, alone, atol=0.1)
    models = [("step 0", early), ("step 9", early), ("end", final)]
    _, numbers, caption = learning._colours(models, images, [Image.new("RGB", (32, 32))] * 2)
    assert np.array_equal(numbers["colours"][2], alone)
    assert np.allclose(numbers["colours"][:2], alone, atol=1e-3) and "turned to agree" in caption
    assert "turned to agree" not in learning._colours(models[2:], images, [Image.new("RGB", (32, 32))] * 2)[2]
