"""What is in a file, without building it; and the command line around it."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from vitral.base.errors import VitralError
from vitral.build import create
from vitral.data.images.preprocess import Preprocess
from vitral.weights.checkpoint import save
from vitral.weights.export import export
from vitral.weights.inspect import inspect


@pytest.fixture
def model():
    torch.manual_seed(0)
    return create("tiny").eval()


def test_every_key_has_a_row(model, tmp_path) -> None:
    found = inspect(export(model, tmp_path, "npz"))
    assert found.family == "ViT, Google layout" and not found.problem
    assert found.config is not None and found.config.heads == 3 and found.origin is not None and found.origin.heads.declared
    assert found.counts == {"reshaped": 8, "joined": 4, "mapped": 20}
    assert found.parameters == sum(p.numel() for p in model.parameters())
    whole = json.loads(json.dumps(found.to_dict()))
    assert len(whole["keys"]) == 32 and whole["config"]["depth"] == 2
    assert "embedding/kernel" in found.table() and "embedding/kernel" not in found.table(keys=False)


def test_unknown_missing_and_dropped_keys_are_shown(model, tmp_path) -> None:
    path = export(model, tmp_path, "hf") / "model.safetensors"
    tensors = load_file(path)
    del tensors["vit.encoder.layer.1.layernorm_after.bias"]
    tensors |= {"vit.pooler.dense.weight": torch.zeros(48, 48), "vit.encoder.layer.0.adapter.weight": torch.zeros(2)}
    save_file(tensors, tmp_path / "odd.safetensors")
    found = inspect(tmp_path / "odd.safetensors", heads=3)
    rows = {row.action: row for row in found.rows if row.action in ("unknown", "missing", "dropped")}
    assert rows["unknown"].foreign == ("encoder.layer.0.adapter.weight",)
    assert rows["missing"].ours == "blocks.1.norm2.bias"
    assert rows["dropped"].foreign == ("pooler.dense.weight",)
    assert "1 keys unknown; 1 keys missing" in found.problem


def test_folders_are_inspected_with_what_they_say(model, tmp_path) -> None:
    folder = export(model, tmp_path / "hf", "hf")
    assert inspect(folder).origin.heads.declared  # type: ignore[union-attr]
    save(model, tmp_path / "ours")
    assert inspect(tmp_path / "ours", heads=3).family == "Vitral"
    with pytest.raises(VitralError):
        inspect(tmp_path / "nowhere")


def test_a_folder_of_ours_says_itself_what_no_shape_tells(tmp_path) -> None:
    rotary = create("tiny", positions="rotary", classes=0)  # leaves no key
    rotary.origin = Preprocess((32, 32), 3, mean=(0.1, 0.2, 0.3)).write_to(rotary.origin)
    save(rotary, tmp_path)
    for path in (tmp_path, tmp_path / "model.safetensors"):
        found = inspect(path)
        assert not found.problem and found.config == rotary.config and found.origin == rotary.origin
        assert "(0.1, 0.2, 0.3)" in found.table()


def test_a_nan_is_a_problem(model, tmp_path) -> None:
    with torch.no_grad():
        model.norm.bias[3] = float("inf")
    found = inspect(export(model, tmp_path, "npz"))
    assert found.problem == "NaN or infinity in norm.bias" and found.config is not None
