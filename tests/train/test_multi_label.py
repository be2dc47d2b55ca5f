"""Several labels a picture, from the table to the answer: learnt, scored, remembered, and refused where it cannot be."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import average_precision_score, f1_score
from torch import nn

import vitral
from vitral.base.errors import ConfigError, DataError
from vitral.cli import main
from vitral.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from vitral.data.splits.open import open_data
from vitral.report.study import write_report
from vitral.run.folder import RunFolder
from vitral.run.made_here import made_here
from vitral.train.evaluate import evaluate, evaluate_loader
from vitral.train.fit import fit
from vitral.train.multi_label import MultiLabelEvaluation, average_precision, choose_thresholds

COLOURS = ("red", "green", "blue")
TINY = ModelConfig(image_size=(8, 8), patch_size=(4, 4), width=16, depth=1, heads=2, mlp_width=16, classes=3).opened()


def picture(labels: np.ndarray, seed: int) -> Image.Image:
    """A quarter of the picture in each of its colours."""
    pixels = np.random.default_rng(seed).integers(0, 60, (8, 8, 3), dtype=np.uint8)
    for channel in np.flatnonzero(labels):
        pixels[4 * (channel % 2) :, 4 * (channel // 2) :, channel] = 255
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 pictures with none to three of the colours, the rarest in every fifth."""
    folder = tmp_path_factory.mktemp("several")
    draw = np.random.default_rng(0)
    lines = ["path,labels"]
    for number in range(80):
        labels = (draw.random(3) < (0.5, 0.4, 0.2)).astype(int)
        picture(labels, number).save(folder / f"{number:02d}.png")
        lines.append(f"{number:02d}.png," + ";".join(name for name, there in zip(COLOURS, labels, strict=True) if there))
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder / "labels.csv"


def config(table: Path, **train: object) -> RunConfig:
    settings = {"epochs": 12, "batch_size": 16, "lr": 1e-2, "threads": 1, "warmup": 0.0, **train}
    data = DataConfig(f"csv:{table}", augment="none", validation=0.2)
    return RunConfig("colours", TINY, data, TrainConfig(**settings))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "colours"
    fit(config(table, keep="best"), out, quiet=True)
    return out


def test_scores_are_those_of_scikit_learn():
    draw = np.random.default_rng(0)
    labels = (draw.random((60, 4)) < 0.3).astype(np.uint8)
    labels[:, 3] = 0  # a class that no image has
    shares = np.round(draw.random((60, 4)) * 0.6 + 0.4 * labels, 1)  # with many ties
    found = average_precision(shares, labels)
    assert found[:3] == pytest.approx([average_precision_score(labels[:, k], shares[:, k]) for k in range(3)])
    assert np.isnan(found[3])
    result = MultiLabelEvaluation(0.5, shares, labels, np.array([0.5, 0.6, 0.7, 0.5]))
    assert result.mean_average_precision == pytest.approx(np.mean(found[:3])) == result.score
    by_hand = [f1_score(labels[:, k], shares[:, k] >= (0.5, 0.6, 0.7)[k]) for k in range(3)]
    assert result.f1 == pytest.approx(np.mean(by_hand))
    assert result.to_dict()["classes"]["3"]["average_precision"] is None and "average precision" in result._repr_html_()


def test_thresholds_are_the_best_of_all_and_lie_between_the_images():
    draw = np.random.default_rng(1)
    labels = (draw.random((40, 3)) < 0.4).astype(np.uint8)
    shares = np.clip(draw.random((40, 3)) * 0.7 + 0.3 * labels, 0, 1)
    labels[:, 2] = 0
    chosen = choose_thresholds(shares, labels)
    for k in range(2):
        tried = [f1_score(labels[:, k], shares[:, k] >= value) for value in np.linspace(0, 1, 500)]
        assert f1_score(labels[:, k], shares[:, k] >= chosen[k]) >= max(tried) - 1e-12
        assert np.abs(shares[:, k] - chosen[k]).min() > 0
    assert chosen[2] == 0.5, "nothing to choose by"


def test_a_loader_is_scored_with_the_loss_of_the_task():
    logits = torch.tensor([[1.0, -2.0], [0.5, 3.0], [-1.0, -1.0]])
    labels = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    batch = SimpleNamespace(images=logits, labels=labels, indices=torch.arange(3))
    result = evaluate_loader(nn.Identity(), SimpleNamespace(epoch=lambda _: [batch], class_names=("a", "b"), multi_label=True))
    assert isinstance(result, MultiLabelEvaluation)
    assert result.loss == pytest.approx(nn.functional.binary_cross_entropy_with_logits(logits, labels).item())
    assert result.predictions.tolist() == [[1, 0], [1, 1], [0, 0]] and result.exact == pytest.approx(2 / 3)
    assert result.top1 == pytest.approx(2 / 3)


def test_every_split_has_the_rarest_label_in_its_share(table: Path):
    data = open_data(DataConfig(f"csv:{table}", validation=0.2))
    whole = np.concatenate([data.train.labels, data.validation.labels, data.test().labels]).mean(axis=0)
    for split in (data.train, data.validation, data.test()):
        share, rarest = split.labels.mean(axis=0), int(whole.argmin())
        assert split.multi_label and share == pytest.approx(whole, abs=0.2) and share[rarest] == pytest.approx(whole[rarest], abs=0.06)
    assert data.train.counts().tolist() == data.train.labels.sum(axis=0).tolist()


def test_it_learns_keeps_its_thresholds_and_answers_with_every_label(run: Path, table: Path):
    folder = RunFolder.open(run)
    last = folder.metrics[-1]
    assert last["split"] == "test" and last["mean_average_precision"] > 0.95
    model = vitral.load(run)
    assert model.origin.multi_label and len(model.origin.thresholds) == 3 and model.origin.thresholds != (0.5,) * 3
    assert not folder.faults(), "the manifest vouches for the thresholds too"
    assert made_here(run), "and it is still known as our own, so that its pages open its pictures"
    everything = vitral.predict(model, [picture(np.array([1, 1, 1]), 900), picture(np.array([0, 0, 0]), 901)], top=1)
    assert set(everything[0].answers) == set(COLOURS) and everything[1].answers == []
    assert sum(share for _, share in everything[0]) > 1.5, "each class has a probability of its own"
    result = evaluate(model, f"csv:{table}", "test")
    assert isinstance(result, MultiLabelEvaluation)
    assert result.mean_average_precision == pytest.approx(last["mean_average_precision"], abs=1e-6)
    own = {k: v for k, v in json.loads((run / "test.json").read_text()).items() if k != "opened"}
    assert result.to_dict() == {**own, "dtype": "fp32"}
    answers = folder.answers()
    assert (answers.right == (result.predictions == result.labels).all(axis=1)).all() and answers.pictures


def test_the_verbs_and_the_page_speak_of_several_labels(run: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["eval", str(run), f"csv:{table}", "--split", "all", "--table", str(tmp_path / "t.csv"), "--out", str(tmp_path / "s")]) == 0
    told = capsys.readouterr().out
    assert "mean average precision" in told and "threshold" in told and "(all, 80 pictures, in fp32)" in told
    with (tmp_path / "t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 80 and {"path", "truth", "right", "answer", "probability of red"} <= set(rows[0])
    assert any(";" in row["answer"] for row in rows)
    page = (tmp_path / "s" / "report.html").read_text()
    assert "Average precision of each class" in page and "mean average precision" in page
    assert "Under an error stand those of the wrong label" in page and "for the truth" not in page
    assert "average precision" in write_report(run, tmp_path / "page.html").read_text()
    assert main(["runs", str(run.parent)]) == 0
    shown = capsys.readouterr().out
    assert "mean average precision" in shown and f"{100 * RunFolder(run).metrics[-1]['mean_average_precision']:.1f} %" in shown
    assert main(["predict", str(run), str(table.parent), "--table", str(tmp_path / "p.csv"), "--top", "1"]) == 0
    assert "yes, from" in capsys.readouterr().out
    assert main(["predict", str(run), str(table.parent / "00.png"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["pictures"][0]
    assert set(found["answers"]) == {row["class"] for row in found["classes"] if row["probability"] >= row["threshold"]}
    assert main(["eval", str(run), f"csv:{table}", "--tta", "flip"]) == 0
    assert main(["eval", str(run), f"csv:{table}", "--calibrate"]) == 2
    assert "threshold of its own" in capsys.readouterr().err


def test_pictures_of_one_class_each_can_be_scored_too(run: Path, tmp_path: Path):
    for number, name in enumerate(COLOURS[:2]):
        (tmp_path / name).mkdir()
        for seed in range(3):
            picture(np.eye(3)[number], 500 + seed).save(tmp_path / name / f"{seed}.png")
    result = evaluate(vitral.load(run), f"folder:{tmp_path}")
    assert isinstance(result, MultiLabelEvaluation) and result.labels.sum(axis=0).tolist() == [0, 3, 3], "blue, green, red"


def test_a_run_goes_on_and_a_probe_starts_its_head(run: Path, table: Path, tmp_path: Path):
    more = RunConfig(
        "more", TINY, config(table).data, TrainConfig(epochs=0.1, batch_size=16, threads=1, head_start="probe"), weights=str(run)
    )
    probed = fit(more, tmp_path / "more", quiet=True)
    assert probed.test["mean_average_precision"] > 0.9
    adapted = dataclasses.replace(more, train=dataclasses.replace(more.train, tune="lora", lora_rank=2, lora_where="all"))
    assert fit(adapted, tmp_path / "adapted", quiet=True).test["mean_average_precision"] > 0.9
    mixed = config(table, epochs=2, label_smoothing=0.1)
    mixed = vitral.presets.runs.change(mixed, mixup=1.0, class_weights=True, subset=30)
    assert np.isfinite(fit(mixed, tmp_path / "mixed", quiet=True).test["loss"])


def test_features_of_a_teacher_go_with_several_labels(run: Path, table: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    taught = fit(config(table, epochs=2, teacher=str(run)), tmp_path / "taught")
    assert np.isfinite(taught.test["loss"]) and "the teacher's features are learnt, not its answers" in capfd.readouterr().err


def test_what_cannot_be_combined_is_refused_by_name(run: Path, table: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match="teacher"):
        fit(config(table, teacher=str(run), distil="answers"), tmp_path / "taught", quiet=True)
    with pytest.raises(DataError, match="labels"):
        vitral.study.probe(str(run), f"csv:{table}", quiet=True)
    single = vitral.create("digits", classes=3, image_size=8, channels=3)
    with pytest.raises(ValueError, match="labels"):
        evaluate(single, f"csv:{table}")
    assert not (tmp_path / "taught").exists()


def test_an_export_says_that_labels_are_several(run: Path, tmp_path: Path):
    model = vitral.load(run)
    vitral.export(model, tmp_path / "timm", format="timm")
    beside = json.loads((tmp_path / "timm" / "preprocess.json").read_text())
    assert beside["thresholds"] == list(model.origin.thresholds)
    vitral.export(model, tmp_path / "hf", format="hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["problem_type"] == "multi_label_classification"
    again = vitral.load(tmp_path / "hf", quiet=True)
    assert again.origin.thresholds == model.origin.thresholds
    vitral.save(again, tmp_path / "ours")
    assert vitral.load(tmp_path / "ours").origin.multi_label
