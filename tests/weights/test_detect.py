"""Which family a state dict is of, from its names alone."""

from __future__ import annotations

import pytest
import torch

from vitral.base.errors import WeightsError
from vitral.weights.detect import REFUSED, detect, refuse
from vitral.weights.family import PREPROCESS

ONE = torch.zeros(1)
PLAIN = ("patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "head.weight")


@pytest.mark.parametrize(
    ("more", "head", "mean"),
    [
        ((), True, (0.5, 0.5, 0.5)),
        ((), False, (0.485, 0.456, 0.406)),
        (("dist_token", "head_dist.weight"), True, (0.485, 0.456, 0.406)),
        (("reg_token",), True, (0.485, 0.456, 0.406)),
        (("blocks.0.ls1.gamma",), True, (0.485, 0.456, 0.406)),
        (("norm_pre.weight",), True, (0.48145466, 0.4578275, 0.40821073)),
    ],
)
def test_the_mean_that_is_assumed_follows_the_family(more, head, mean) -> None:
    """ViT, self-supervised backbone, DeiT, registers, DINOv2 and CLIP share timm's layout, but not how pictures are normalised."""
    names = [name for name in PLAIN if head or not name.startswith("head.")]
    family = detect(dict.fromkeys((*names, *more), ONE)).family
    assert PREPROCESS[family.preprocess]["mean"] == mean


def test_prefixes_of_wrappers_are_taken_off_and_told() -> None:
    found = detect({f"module._orig_mod.{name}": ONE for name in PLAIN})
    assert found.family.name == "timm" and set(found.tensors) == set(PLAIN)
    assert [note.split("'")[1] for note in found.notes] == ["module.", "_orig_mod."]


def test_blocks_in_chunks_are_joined() -> None:
    found = detect({"patch_embed.proj.weight": ONE, "head.weight": ONE, "blocks.1.7.attn.qkv.weight": ONE})
    assert "blocks.7.attn.qkv.weight" in found.tensors and found.notes == ("chunks of blocks joined",)


@pytest.mark.parametrize(
    "key",
    [
        "layers.0.blocks.0.attn.relative_position_bias_table",
        "layers.1.downsample.reduction.weight",
        "patch_embed.backbone.stem.conv.weight",
        "blocks.0.attns.1.qkv.weight",
        "stages.0.blocks.0.weight",
        "blocks.0.attn.lambda_q1",
        "visual.layer1.0.conv1.weight",
    ],
)
def test_other_models_are_refused_by_the_key_that_gives_them_away(key) -> None:
    with pytest.raises(WeightsError, match="the key") as caught:
        refuse([*PLAIN, key], "x.pth")
    assert key in str(caught.value) and any(what in str(caught.value) for what in REFUSED.values())
    refuse(PLAIN, "x.pth")


def test_two_models_under_one_name_are_not_mixed() -> None:
    with pytest.raises(WeightsError, match="both"):
        detect({"module.head.weight": ONE, "head.weight": ONE})
    with pytest.raises(WeightsError, match="no family"):
        detect({"lstm.weight": ONE})
