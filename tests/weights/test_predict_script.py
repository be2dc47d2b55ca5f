"""A file that leaves Vitral keeps its preprocessing and its class names: in its metadata, and as a script that needs nothing of ours."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.scripts import load_script

import vitral
from vitral.base.origin import fact
from vitral.build import create
from vitral.model.classifier import Classifier
from vitral.weights.export import export
from vitral.weights.predict_script import write_predict_script


def made(channels: int = 3, **facts: Any) -> Classifier:
    torch.manual_seed(0)
    model = create("tiny", classes=3, channels=channels, image_size=(32, 24), depth=1).eval()
    origin = {"classes": ("chat", "chien", "猫"), "mean": (0.4,) * channels, "std": (0.3,) * channels, "crop": 0.9, **facts}
    model.origin = dataclasses.replace(model.origin, **{name: fact(value) for name, value in origin.items()})
    return model


def shown() -> list[Image.Image]:
    draw = np.random.default_rng(0)
    rgb = Image.fromarray(draw.integers(0, 256, (50, 71, 3), dtype=np.uint8))
    turned = rgb.copy()
    turned.getexif()[0x0112] = 6
    clear = rgb.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    same = rgb.resize((24, 32))
    return [rgb, rgb.convert("L"), turned, clear, same, rgb.resize((300, 20)), rgb.convert("P")]


@pytest.mark.parametrize("facts", [{}, {"resize": "squash"}, {"crop": 1.0, "interpolation": "bilinear"}], ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_the_script_prepares_as_vitral_does(facts: dict[str, Any], channels: int, tmp_path: Path) -> None:
    model = made(channels, **facts)
    write_predict_script(model, tmp_path, runs=False)
    prepare, ours = load_script(tmp_path / "predict.py").prepare, vitral.transform(model)
    for number, image in enumerate(shown()):
        assert np.abs(prepare(image)[0] - ours(image).numpy()).max() <= 1e-6, number


def test_an_onnx_file_says_what_it_wants_and_is_run_by_the_script_alone(tmp_path: Path) -> None:
    import onnxruntime

    model = made()
    path = export(model, tmp_path / "out", "onnx")
    kept = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).get_modelmeta().custom_metadata_map
    assert json.loads(kept["vitral.class_names"]) == ["chat", "chien", "猫"] and json.loads(kept["vitral.crop"]) == 0.9
    shown()[0].save(tmp_path / "photo.png")
    done = subprocess.run(
        [sys.executable, "-I", str(path.parent / "predict.py"), str(tmp_path / "photo.png")], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    best, share = vitral.predict(model, [tmp_path / "photo.png"])[0][0]
    assert f"photo.png {best} {100 * share:.1f} %" in done.stdout.decode()


def test_a_torchvision_export_has_it_beside_and_five_channels_have_no_script(tmp_path: Path) -> None:
    model = create("tiny", classes=3)
    export(model, tmp_path / "tv", "torchvision")
    assert json.loads((tmp_path / "tv/preprocess.json").read_text())["image_size"] == [32, 32] and (tmp_path / "tv/predict.py").is_file()
    write_predict_script(made(5), tmp_path, runs=True)
    assert (tmp_path / "preprocess.json").is_file() and not (tmp_path / "predict.py").exists()
