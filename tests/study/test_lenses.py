"""vitral lens, plain and trained."""

from __future__ import annotations

import json

import numpy as np
from PIL import Image

import vitral
from vitral.cli import main
from vitral.data.images.preprocess import Preprocess


def test_the_verb_reads_trains_and_reads_again(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("vitral.draw.provenance.DPI", 40)
    model = vitral.create("tiny", image_size=8, patch_size=2, channels=1, classes=10)
    model.origin = Preprocess((8, 8), 1).write_to(model.origin, tuple(map(str, range(10))))
    vitral.save(model, tmp_path / "model")
    Image.effect_noise((8, 8), 80).save(tmp_path / "a.png")
    start = ["lens", str(tmp_path / "model"), str(tmp_path / "a.png"), "--out", str(tmp_path / "out")]
    assert main([*start, "--fit", "digits", "--max-images", "120", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (picture,) = told["pictures"]
    assert picture["trained"] and len(picture["blocks"]) == model.config.depth + 1 and len(picture["files"]) == 2
    assert told["trained"]["tokens"][0] > 0 and told["trained"]["judged_on"] > 0
    total = picture["parts"]["embedding"] + picture["parts"]["rest"] + np.sum(picture["parts"]["heads"]) + np.sum(picture["parts"]["mlp"])
    kept = np.load(tmp_path / "out/a-parts.npz")
    assert abs(total + kept["attention_bias"].sum() - picture["parts"]["logit"]) < 1e-4
    assert main([*start, "--trained", str(tmp_path / "out/lens.safetensors")]) == 0
    assert "settled after" in capsys.readouterr().out
    assert main([*start, "--trained", "x", "--fit", "digits"]) == 2
