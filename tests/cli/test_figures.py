"""vitral figures."""

from __future__ import annotations

import json

from vitral.build import create
from vitral.cli import main
from vitral.weights.checkpoint import save


def test_without_pictures_it_takes_the_two_photographs(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("vitral.draw.provenance.DPI", 40)
    save(create("cnn", image_size=16), tmp_path / "model")
    out = tmp_path / "out"
    assert main(["figures", str(tmp_path / "model"), "--out", str(out), "--format", "png", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert {name.rpartition("/")[2] for name in files} >= {"filters.png", "china-methods.png", "flower-prediction.png"}
    assert all((out / name.rpartition("/")[2]).is_file() for name in files)
    facts = json.loads((out / "china-methods.json").read_text())
    assert facts["picture"]["source"] == "china.jpg" and facts["command"].startswith("vitral figures ")


def test_help_shows_an_example(capsys) -> None:
    assert main(["figures", "--help"]) == 0
    assert "vitral figures vit_tiny.safetensors" in capsys.readouterr().out
