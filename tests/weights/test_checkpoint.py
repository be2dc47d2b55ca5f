"""A folder rebuilds its model alone."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from safetensors.torch import save as to_bytes

from vitral.base.errors import VitralError, WeightsError
from vitral.base.origin import Origin, fact
from vitral.build import create
from vitral.look.predict import predict
from vitral.weights.checkpoint import load_checkpoint, save
from vitral.weights.load import load


@pytest.mark.parametrize("name", ["tiny", "cnn", "hybrid", "resnet18"])
def test_round_trip_is_an_identity(tmp_path, name):
    torch.manual_seed(0)
    model = create(name, image_size=32, classes=5).eval()
    model.origin = Origin(source=fact("test"), classes=fact(("a", "b", "c", "d", "e")), mean=fact((0.1, 0.2, 0.3)))
    save(model, tmp_path)
    again = load_checkpoint(tmp_path)
    assert again.config == model.config
    assert again.origin == model.origin
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(again(images), model(images))
    assert all(parameter.requires_grad for parameter in again.parameters())


@pytest.mark.parametrize("positions", ["sincos", "rotary"])
def test_fixed_positions_are_rebuilt(tmp_path, positions):
    model = create("tiny", positions=positions).eval()
    save(model, tmp_path)
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(load_checkpoint(tmp_path)(images), model(images))


def test_loading_imports_no_trainer(tmp_path):
    save(create("tiny"), tmp_path)
    code = (
        "import sys; from vitral.weights.checkpoint import load_checkpoint; load_checkpoint(sys.argv[1]);"
        "print([m for m in sys.modules if m.startswith(('vitral.train', 'torchvision', 'matplotlib'))])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_run_that_has_not_ended_says_how_it_goes_on(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match="--resume"):
        load(tmp_path)


def test_damage_is_named_in_one_line(tmp_path):
    with pytest.raises(VitralError, match=r"model\.safetensors"):
        load_checkpoint(tmp_path)
    save(create("tiny"), tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    tensors = load_file(weights)
    tensors["blocks.0.norm1.weigth"] = tensors.pop("blocks.0.norm1.weight")
    save_file(tensors, weights)
    with pytest.raises(VitralError, match=r"model\.safetensors .*bytes"):
        load_checkpoint(tmp_path)
    (tmp_path / "manifest.json").unlink()  # nothing vouches for it any more: what is wrong is found by reading it
    with pytest.raises(VitralError, match=r"missing blocks\.0\.norm1\.weight.* blocks\.0\.norm1\.weigth"):
        load_checkpoint(tmp_path)
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(VitralError, match="contents"):
        load_checkpoint(tmp_path)
    weights.write_bytes(whole)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model"]["width"] = 96
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(VitralError, match="config"):
        load_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(VitralError, match=r"config\.json"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_precision_answer_in_float32(tmp_path, dtype) -> None:
    save(create("tiny").to(dtype), tmp_path)
    model = load(tmp_path)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.origin.changes[-1] == f"weights taken from {str(dtype).removeprefix('torch.')} to float32"
    (ranking,) = predict(model, [np.zeros((32, 32, 3), np.uint8)])
    assert len(ranking) == 5


def test_whole_numbers_are_no_weights(tmp_path) -> None:
    model = create("tiny")
    save(model, tmp_path)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    tensors["head.linear.bias"] = tensors["head.linear.bias"].to(torch.int8)
    (tmp_path / "model.safetensors").write_bytes(to_bytes(tensors))
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(WeightsError, match=r"head\.linear\.bias"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mean", [float("nan")] * 3),
        ("std", [0.5, 0.0, 0.5]),
        ("std", ["x"]),
        ("mean", []),
        ("crop", 0),
        ("classes", [None]),
        ("heads", "3"),
    ],
)
def test_an_origin_that_cannot_be_is_refused_when_it_is_read(tmp_path, name, value) -> None:
    save(create("tiny"), tmp_path)
    (tmp_path / "manifest.json").unlink()
    described = json.loads((tmp_path / "config.json").read_text())
    described["origin"][name]["value"] = value
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(WeightsError, match=f"whose {name} is"):
        load(tmp_path)


def test_sizes_that_no_tensor_has_are_one_line(tmp_path) -> None:
    save(create("tiny"), tmp_path)
    (tmp_path / "manifest.json").unlink()
    described = json.loads((tmp_path / "config.json").read_text())
    for name, value in (("classes", 2**62), ("mlp_width", 10**30), ("head_hidden", 2**61)):
        (tmp_path / "config.json").write_text(json.dumps(described | {"model": described["model"] | {name: value}}))
        with pytest.raises(VitralError):
            load(tmp_path)
