"""The verb embed, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.build import create
from vitral.cli import main
from vitral.weights.checkpoint import save


def test_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(save(create("digits"), tmp_path / "model"))
    (tmp_path / "photos").mkdir()
    Image.new("L", (8, 8), 90).save(tmp_path / "photos" / "grey.png")
    arguments = ["embed", model, str(tmp_path / "photos"), "--out", str(tmp_path / "f.npz"), "--quiet", "--device", "cpu"]
    assert main(arguments) == 0
    assert "1 pictures, 96 numbers each" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pictures"] == 1
    with np.load(tmp_path / "f.npz") as stored:
        assert stored["paths"].tolist() == ["grey.png"]
