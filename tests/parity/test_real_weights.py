"""Real weights on real pictures: ViT-Ti/16 of AugReg, beside timm."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.weights.load import load
from vitral.weights.proof import prove

SHARED = Path(os.environ.get("VITRAL_SHARED", Path(__file__).parents[2] / "../shared"))
FILE = SHARED / "weights/vit_tiny_patch16_224.safetensors"

pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="the pretrained ViT-Ti/16 is not here")


@pytest.fixture(scope="module")
def theirs():
    import timm

    return timm.create_model("vit_tiny_patch16_224", checkpoint_path=str(FILE)).eval()


@pytest.fixture(scope="module")
def photographs() -> list[Image.Image]:
    from sklearn.datasets import load_sample_images

    return [Image.fromarray(np.asarray(image)) for image in load_sample_images().images]


def test_the_same_top_five_as_timm(theirs, photographs) -> None:
    from timm.data import create_transform, resolve_data_config

    from vitral.data.images.preprocess import Preprocess

    model = load(FILE)
    transform = create_transform(**resolve_data_config({}, model=theirs))
    images = torch.stack([transform(photograph) for photograph in photographs])
    with torch.no_grad():
        expected, ours = theirs(images), model(Preprocess.of(model).batch(photographs))
        same_input = model(images)
    assert torch.equal(ours.topk(5).indices, expected.topk(5).indices)
    assert (same_input - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert prove(model, theirs).holds


def test_names_and_assumptions(capsys) -> None:
    model = load(FILE)
    assert model.origin.class_name(538) == "dome" and not model.origin.classes.declared
    assert model.config.heads == 3 and not model.origin.heads.declared
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "mean = (0.5, 0.5, 0.5)" in said and "heads = 3" in said


@pytest.mark.skipif(not (SHARED / "data/santorini.png").is_file(), reason="the picture of Santorini is not here")
def test_santorini_is_a_dome_when_normalised_with_a_half_and_a_mosque_with_imagenets_mean() -> None:
    from vitral.data.images.preprocess import open_picture

    def top(preprocess: dict) -> str:
        model = load(FILE, preprocess=preprocess)
        picture = open_picture(SHARED / "data/santorini.png", model)
        with torch.no_grad():
            return model.origin.class_name(int(model(picture.tensor[None]).argmax()))

    assert top({"mean": 0.5, "std": 0.5, "resize": "squash"}) == "dome"
    assert top({"mean": 0.5, "std": 0.5}) == "dome"
    assert top({"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}) == "mosque"


def test_adopting_the_live_model_makes_preprocessing_known(theirs) -> None:
    from vitral.weights.adopt import adopt

    origin = adopt(theirs).origin
    assert origin.mean.declared and origin.mean.value == (0.5, 0.5, 0.5) and origin.crop.value == 0.9
    assert max(origin.parity.values()) <= 1e-5


def test_one_command_proves_a_file_against_its_library(capsys) -> None:
    import json

    from vitral.cli import main

    assert main(["weights", "inspect", str(FILE), "--against", "timm:vit_tiny_patch16_224", "--json"]) == 0
    proof = json.loads(capsys.readouterr().out)["proof"]
    assert proof["holds"] and len(proof["layers"]) == 14 and proof["worst"] <= 1e-5
    assert main(["weights", "inspect", str(FILE), "--brief", "--against", "timm:vit_small_patch16_224"]) == 1
    assert "do not fit" in capsys.readouterr().err
