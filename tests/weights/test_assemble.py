"""Tensors into a model: filled once, in fp32, with an origin that says what is known."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from vitral.base.errors import UsageError, WeightsError
from vitral.build import create
from vitral.weights.assemble import assemble, imagenet_names
from vitral.weights.declared import declare
from vitral.weights.export import export
from vitral.weights.load import load

HEADS = declare("here", {"heads": 3})


@pytest.fixture
def tensors(tmp_path):
    return load_file(export(create("tiny"), tmp_path / "timm", "timm"))


def test_the_weights_are_copied_whatever_their_precision(tensors) -> None:
    model = assemble({name: tensor.half() for name, tensor in tensors.items()}, "x", HEADS)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32} and all(p.requires_grad for p in model.parameters())
    assert not model.training
    alone = assemble(tensors, "x", HEADS)
    with torch.no_grad():
        alone.head.linear.weight.zero_()
    assert tensors["head.weight"].abs().max() > 0


def test_nothing_is_missing_and_nothing_left(tensors) -> None:
    with pytest.raises(WeightsError, match=r"lacks .*blocks\.1\.norm2\.bias"):
        assemble({name: tensor for name, tensor in tensors.items() if name != "blocks.1.norm2.bias"}, "x", HEADS)
    with pytest.raises(WeightsError, match=r"surprise\.weight"):
        assemble({**tensors, "surprise.weight": torch.zeros(1)}, "x", HEADS)


def test_what_the_source_says_is_known_and_the_rest_assumed_of_its_family(tensors) -> None:
    said = declare("the caller", {"heads": 3}, {"mean": (0.1, 0.2, 0.3), "classes": tuple("abcdefghij")})
    origin = assemble(tensors, "x", said, ("unwrapped",)).origin
    assert origin.mean.declared and origin.mean.note == "the caller" and origin.classes.value == tuple("abcdefghij")
    assert not origin.std.declared and origin.std.note == "usual for ViT, timm layout" and origin.changes[0] == "unwrapped"
    with pytest.raises(UsageError, match="10 outputs"):
        assemble(tensors, "x", declare("the caller", {"heads": 3}, {"classes": ("a", "b")}))


def test_googles_kernels_tell_their_heads(tmp_path) -> None:
    with np.load(export(create("tiny"), tmp_path, "npz")) as arrays:
        model = assemble({name: torch.from_numpy(arrays[name]) for name in arrays.files}, "x")
    assert model.config.heads == 3 and model.origin.heads.declared and model.origin.heads.note == "the file's own shapes"


def test_a_thousand_outputs_get_imagenets_names(tmp_path) -> None:
    path = export(create("tiny", classes=1000, depth=1), tmp_path, "npz")
    origin = load(path).origin
    assert origin.class_name(538) == "dome" and not origin.classes.declared and len(imagenet_names()) == 1000


def test_names_of_imagenet_come_without_torchvision() -> None:
    """Its import is half of the start of `vitral predict` with ImageNet weights."""
    code = "import sys; from vitral.weights.assemble import imagenet_names as n; print(len(n()), n()[1], 'torchvision' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1000", "goldfish", "False"]
    from torchvision.models._meta import _IMAGENET_CATEGORIES

    assert imagenet_names() == tuple(_IMAGENET_CATEGORIES)
