"""The proof of a quantised model, its verb and its page: what is measured is so, and what fails its limit is not written."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.base.errors import FailedError, UsageError
from vitral.base.origin import fact
from vitral.build import create
from vitral.cli import main
from vitral.model.classifier import Classifier
from vitral.study.proof import INT8, ORIGINAL, Limits, quantise
from vitral.study.proof_pictures import ProofPictures
from vitral.weights.checkpoint import save
from vitral.weights.onnx.quantise import open_graph

pytest.importorskip("onnxruntime")
CLASSES = ("dark", "light")


def made() -> Classifier:
    """A ViT that tells dark pictures from light ones: the mean of its features decides."""
    torch.manual_seed(0)
    model = create("ti/16", image_size=32, patch_size=8, width=32, depth=2, heads=2, mlp_width=64, classes=2).eval()
    model.origin = dataclasses.replace(model.origin, classes=fact(CLASSES))
    images = torch.stack([torch.full((3, 32, 32), value) for value in (-0.8, 0.8)])
    with torch.no_grad():
        dark, light = model.pooled(images)
        model.head.linear.weight.copy_(torch.stack([dark - light, light - dark]))
        model.head.linear.bias.copy_(torch.stack([(light - dark), (dark - light)]) @ (dark + light) / 2)
    return model


@pytest.fixture(scope="module", autouse=True)
def exported_once():
    """The exporter takes seconds a model; graphs are not changed by what is made of them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("float_graph", "to_graph"):
            made_before: dict[object, object] = {}
            export = getattr(sys.modules[quantise.__module__], name)

            def remembered(model, attention=False, export=export, made_before=made_before):
                key = model.config, attention
                if key not in made_before:
                    made_before[key] = export(model, attention)
                return made_before[key]

            patch.setattr(sys.modules[quantise.__module__], name, remembered)
        yield


@pytest.fixture(scope="module")
def model() -> Classifier:
    return made()


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draw = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for name, middle in zip(CLASSES, (40, 215), strict=True):
        (folder / name).mkdir()
        for number in range(10):
            pixels = np.clip(draw.normal(middle, 30, (36, 36, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


SETTINGS = {"rounds": 2, "layer_pictures": 3, "quiet": True}


@pytest.fixture(scope="module")
def found(model, photos):
    return quantise(ProofPictures(model, f"folder:{photos}", "all"), **SETTINGS)


def test_the_proof_is_of_the_models_that_are_given(model, photos, found):
    proof = found.proof
    assert set(found.files) == {"model.onnx", "model.bf16.onnx", "model.fp16.onnx"}
    assert proof.pictures == 20 and not proof.failures and [one.name for one in proof.versions] == ["fp32", "int8", "bf16", "fp16"]
    small = proof.version(INT8)
    assert small.bytes == len(found.files["model.onnx"]) < 0.6 * proof.version(ORIGINAL).bytes
    assert small.same == 1 and small.top1 == proof.version(ORIGINAL).top1 == 1 and small.speed and small.milliseconds
    assert small.spread[0] <= small.speed <= small.spread[1] and small.calibration is not None
    images = torch.stack([model_image(model, path) for path in sorted(photos.rglob("*.png"))])
    with torch.no_grad():
        change = np.abs(open_graph(found.files["model.onnx"], 1)(images.numpy())[0] - model(images).numpy())
    assert small.largest == pytest.approx(change.max(), rel=0.02) and proof.version(ORIGINAL).largest == 0
    json.dumps(proof.to_dict())


def model_image(model: Classifier, path: Path) -> torch.Tensor:
    from vitral.data.images.preprocess import open_picture

    return open_picture(path, model).tensor


def test_scores_of_fewer_pictures_are_not_set_beside_those_of_all(model, photos, monkeypatch):
    monkeypatch.setattr(sys.modules[quantise.__module__], "_STORED_PICTURES", 16)
    proof = quantise(ProofPictures(model, f"folder:{photos}", "all"), rounds=1, layer_pictures=0, quiet=True).proof
    assert proof.version("bf16").pictures == 16 and proof.version("bf16").top1 is None and proof.version(INT8).top1 == 1


def test_the_layer_that_hurts_most_comes_first(found):
    layers = found.proof.layers
    assert len(layers) == 9 and [one.typical for one in layers] == sorted((one.typical for one in layers), reverse=True)
    assert sum(one.share for one in layers) == pytest.approx(1) and layers[0].typical > 0


def test_a_folder_of_pictures_needs_no_labels(model, photos):
    proof = quantise(ProofPictures(model, str(photos), count=5), rounds=1, layer_pictures=0, quiet=True).proof
    assert proof.pictures == 5 and proof.version(INT8).top1 is None and proof.layers == ()
    assert any("5 of these pictures" in note for note in proof.notes)


def test_a_damaged_file_leaves_the_others_their_names(model, photos, tmp_path):
    for number, path in enumerate(sorted(photos.rglob("*.png"))[-3:]):
        (tmp_path / f"{number}.png").write_bytes(b"no picture" if number == 1 else path.read_bytes())
    pictures = ProofPictures(model, str(tmp_path))
    ((images, indices),) = pictures.batches()
    assert [pictures.where(index) for index in indices] == ["0.png", "2.png"]
    assert np.array_equal(images[1], model_image(model, tmp_path / "2.png").numpy())


def test_other_classes_are_no_labels(photos):
    other = create("ti/16", image_size=32, patch_size=8, width=16, depth=1, heads=2, mlp_width=32, classes=3)
    proof = quantise(ProofPictures(other, f"folder:{photos}", "all"), limits=Limits(0), rounds=1, layer_pictures=0, quiet=True).proof
    assert proof.version(INT8).top1 is None and any(note.startswith("without labels") for note in proof.notes)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch):
    """Weights rounded to next to nothing: answers change."""

    def round_badly(weight: np.ndarray, _: object) -> tuple[np.ndarray, np.ndarray]:
        return np.sign(weight).astype(np.int8), np.ones(weight.shape[1], np.float32)

    monkeypatch.setattr("vitral.weights.onnx.quantise.gptq_round", round_badly)


def test_a_model_that_fails_its_limit_is_refused_unless_asked_for(model, photos, broken):
    with pytest.raises(FailedError, match=r"int8 .*--force"):
        quantise(ProofPictures(model, str(photos)), rounds=1, layer_pictures=0, quiet=True)
    proof = quantise(
        ProofPictures(model, f"folder:{photos}", "all"), rounds=1, layer_pictures=0, limits=Limits(force=True), quiet=True
    ).proof
    assert len(proof.failures) == 2 and "top-1" in proof.failures[1] and not proof.to_dict()["passed"]
    assert proof.changed and proof.changed[0].before != proof.changed[0].after


def test_limits_that_make_no_sense_are_refused(model, photos):
    for limits in ({"agreement": 97}, {"top1_loss": -1}):
        with pytest.raises(UsageError):
            Limits(**limits)
    with pytest.raises(UsageError):
        ProofPictures(model, str(photos), count=0)
    with pytest.raises(UsageError):
        quantise(ProofPictures(model, str(photos)), rounds=0, quiet=True)


def test_a_model_without_a_head_is_refused(photos):
    with pytest.raises(UsageError, match="no head"):
        ProofPictures(create("ti/16", image_size=32, patch_size=8, classes=0, depth=1), str(photos))


def test_the_verb_writes_everything_or_nothing(model, photos, tmp_path, capsys, broken):
    save(model, tmp_path / "model")
    before = sorted(tmp_path.iterdir())
    arguments = [
        "quantise",
        str(tmp_path / "model"),
        str(photos),
        "--out",
        str(tmp_path / "small"),
        "--rounds",
        "1",
        "--layer-pictures",
        "2",
    ]
    assert main([*arguments, "--json"]) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("vitral: int8 gives") and "most is lost in" in error and sorted(tmp_path.iterdir()) == before
    assert main([*arguments, "--json", "--force", "--attention"]) == 0
    told = json.loads(capsys.readouterr().out)
    written = {path.name for path in (tmp_path / "small").iterdir()}
    assert written == {"model.onnx", "model.bf16.onnx", "model.fp16.onnx", "predict.py", "preprocess.json", "proof.json", "report.html"}
    assert told == json.loads((tmp_path / "small" / "proof.json").read_text()) and told["passed"] is False
    page = (tmp_path / "small" / "report.html").read_text()
    assert "written although it fails its limit" in page and "Which layer hurts most" in page and "data:image/png" in page
    run = open_graph((tmp_path / "small" / "model.onnx").read_bytes(), 1, ["logits", "attention_1"])
    assert run(np.zeros((1, 3, 32, 32), np.float32))[1].shape == (1, 2, 17, 17)


def test_a_folder_with_other_things_is_not_replaced(model, photos, tmp_path, capsys):
    save(model, tmp_path / "model")
    assert main(["quantise", str(tmp_path / "model"), str(photos), "--out", str(tmp_path)]) == 2
    assert "holds something else" in capsys.readouterr().err and (tmp_path / "model").exists()
