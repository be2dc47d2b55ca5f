from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

import vitral
from vitral.base.errors import VitralError
from vitral.report.demo import photograph
from vitral.report.demo.photograph import PHOTOGRAPH, Weights, draw_photograph, find_weights


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, without network and cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(photograph, "_cached", lambda: False)
    monkeypatch.setattr(photograph, "reachable", lambda address: False)
    return tmp_path


def test_without_weights_and_network_it_is_told_in_one_line(alone: Path, monkeypatch: pytest.MonkeyPatch):
    assert find_weights().missing == "no weights here, and no network to fetch some"
    assert find_weights("none").model is None
    monkeypatch.setattr(photograph, "find_spec", lambda name: None)
    assert find_weights().missing == "no weights here, and timm, which fetches some, is not installed"


def test_weights_in_the_folder_are_taken(alone: Path, monkeypatch: pytest.MonkeyPatch):
    model = vitral.create("tiny")
    monkeypatch.setattr(photograph, "load", {"vit_tiny_a.safetensors": model, "timm:vit_tiny_patch16_224": None}.__getitem__)
    (alone / "vit_tiny_a.safetensors").touch()
    assert find_weights() == Weights("vit_tiny_a.safetensors", model)


def test_the_hub_is_asked_where_it_can_be_reached(alone: Path, monkeypatch: pytest.MonkeyPatch):
    model = vitral.create("tiny")
    monkeypatch.setattr(photograph, "load", {"timm:vit_tiny_patch16_224": model}.__getitem__)
    monkeypatch.setattr(photograph, "_online", lambda: True)
    assert find_weights() == Weights("timm:vit_tiny_patch16_224", model)


def test_damaged_weights_stop_the_demo_only_where_they_were_asked_for(alone: Path):
    (alone / "vit_tiny.safetensors").write_bytes(b"no weights")
    found = find_weights()
    assert found.model is None and "vit_tiny.safetensors" in found.missing
    with pytest.raises(VitralError):
        find_weights("vit_tiny.safetensors")
    with pytest.raises(FileNotFoundError):
        find_weights("missing.safetensors")


def test_the_sheet_says_whose_model_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("vitral.draw.provenance.DPI", 40)
    drawn = draw_photograph(vitral.create("tiny", channels=3), tmp_path, "vitral demo")
    with Image.open(drawn.path) as sheet, Image.open(PHOTOGRAPH) as original:
        assert sheet.width > 200 and original.size == (451, 300)
    assert drawn.answer.endswith(" %")
    assert "which others trained" in drawn.path.with_suffix(".json").read_text(encoding="utf-8")
