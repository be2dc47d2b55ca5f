"""vitral pretrain, from the command to the probe; and that no label is read on the way."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.train.stops import signalled_after

from vitral.base.errors import ConfigError, DataError, Stopped
from vitral.cli import main
from vitral.config import DataConfig, RunConfig, TrainConfig
from vitral.data.sources.protocol import ImageSet, Reader
from vitral.data.splits.open import open_data, open_source
from vitral.presets.runs import pretraining
from vitral.report.run import write_run_report
from vitral.run.folder import RunFolder
from vitral.study.learning import draw_rebuilt
from vitral.study.probe import labelled, linear_of, probe_run
from vitral.train.advice import before
from vitral.train.evaluate import evaluation_loader
from vitral.train.fit import fit
from vitral.train.prepare import prepare
from vitral.train.probe import fit_linear, read_features

SMALL = ["--threads", "1", "--device", "cpu", "--batch-size", "64", "--quiet"]
SMALL += ["--set", "width=16", "depth=2", "heads=2", "mlp_width=16", "projection=8", "projection_hidden=16"]


def tiny(data: str = "digits", **changes: Any) -> RunConfig:
    config = pretraining(data)
    model = dataclasses.replace(config.model, width=16, depth=1, heads=2, mlp_width=16, patch_size=(4, 4), image_size=(8, 8))
    train = dataclasses.replace(config.train, **({"epochs": 0.3, "batch_size": 32, "threads": 1, "device": "cpu"} | changes))
    assert config.pretrain is not None
    return dataclasses.replace(config, model=model, train=train, pretrain=dataclasses.replace(config.pretrain, projection_hidden=16))


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "digits"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            importlib.import_module("vitral.study.probe"), "_ENOUGH", 1
        )  # its probe's strength is chosen on one held-out tenth, not on eight
        assert main(["pretrain", "digits", "--epochs", "0.5", "--snapshots", "3", "--out", str(out), *SMALL]) == 0
    return out


def test_a_run_folder_like_any_other_with_a_probe_in_it(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["split"] == "validation" and all("accuracy" not in line for line in lines)
    assert lines[-1]["effective_rank"] > 1 and np.isfinite(lines[-1]["loss"])
    folder = RunFolder.open(run_folder)
    assert folder.finished and folder.faults() == [] and folder.settled.model.classes == 0
    found = folder.probe()
    assert found is not None and 0.1 < found["linear"]["accuracy"] <= 1 and found["neighbours"]["settings"] == "k=20"
    for name in ("colours", "similarity", "neighbours"):
        assert (run_folder / "figures" / f"learning-{name}.png").is_file()
    rows = np.load(run_folder / "figures" / "learning-colours.npz")["colours"]
    assert len(folder.snapshots()) == len(rows) == 3, "the last snapshot is the model at the end, which has a row already"
    page = write_run_report(run_folder).read_text()
    assert "It learnt without labels" in page and "Patches as colours" in page and "effective rank" in page
    stored = json.loads((run_folder / "env.json").read_text())["data"]
    assert stored["classes"] == [] and stored["opened"] == {}, "labels and test stay closed"


def test_the_probe_judges_on_pictures_that_the_run_did_not_learn_from(run_folder: Path) -> None:
    folder = RunFolder.open(run_folder)
    opened, model = labelled(folder, folder.model()), folder.model()
    config = folder.settled.data
    blind = open_data(config, source=open_source(config, labels=False), image_size=(8, 8))
    assert (opened.validation.indices == blind.validation.indices).all() and (opened.train.indices == blind.train.indices).all()
    assert set(blind.train.labels) == {0} and len(set(opened.train.labels)) == 10 and model.config.classes == 0


class Forbidden(ImageSet):
    """A part whose labels may not be looked at."""

    @property
    def labels(self) -> Any:  # type: ignore[override]
        raise AssertionError("a label was read")

    @labels.setter
    def labels(self, _: Any) -> None: ...


class Closed(Reader):
    """Images of the test split: none may be read."""

    def image(self, index: int) -> Any:
        raise AssertionError(f"test image {index} was opened")


@pytest.mark.parametrize("method", ["lejepa", "dino", "mae"])
def test_labels_are_never_read(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the whole command, pictures of learning and all, until a probe is asked for."""
    source = open_source(DataConfig(name="digits"))
    parts = {}
    for name, reader in (("train", source.train.reader), ("test", Closed())):
        part = Forbidden.__new__(Forbidden)
        for field, value in (("reader", reader), ("indices", getattr(source, name).indices)):
            object.__setattr__(part, field, value)
        parts[name] = part
    closed = dataclasses.replace(source, **parts)
    monkeypatch.setattr("vitral.data.sources.kinds.open_named", lambda *_: closed)
    out = tmp_path / "run"
    assert main(["pretrain", "digits", "--method", method, "--epochs", "0.1", "--skip-probe", "--out", str(out), *SMALL]) == 0
    assert RunFolder.open(out).metrics[-1]["split"] == "validation" and (out / "figures" / "learning-neighbours.png").is_file()
    with pytest.raises(AssertionError, match="label"):
        probe_run(out, device="cpu", quiet=True)


def test_a_folder_without_classes_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    for number in range(160):
        where = tmp_path / "photos" / ("deep/er" if number % 2 else "")
        where.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(where / f"{number}.png")
    (tmp_path / "photos" / "notes.txt").write_text("no picture")
    data = f"folder:{tmp_path / 'photos'}"
    with pytest.raises(DataError, match=r"one class|class folders"):
        open_data(DataConfig(name=data))
    run = fit(tiny(data), out=tmp_path / "run", quiet=True)
    assert run.model.config.classes == 0 and run.model(torch.zeros(1, 3, 8, 8)).shape == (1, 32)
    assert run.model.origin.assumptions() == []  # without a head there are no names to assume
    assert "1 (notes.txt)" in capsys.readouterr().err
    with pytest.raises(DataError):
        probe_run(run.path, device="cpu", quiet=True)


def test_a_stopped_pretraining_goes_on_exactly(tmp_path: Path) -> None:
    config = tiny(epochs=1.0, ema=0.9, evaluate_every=0.2, token_drop=0.5, token_drop_after=0.25, token_drop_until=0.5)
    whole = fit(config, out=tmp_path / "whole", quiet=True)
    with pytest.raises(Stopped, match="--resume"), signalled_after(17):
        fit(config, out=tmp_path / "parts", quiet=True)
    parts = fit(config, out=tmp_path / "parts", resume=True, quiet=True)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.state_dict().values(), parts.model.state_dict().values(), strict=True))
    passing = {"seconds", "images_per_second"}
    one, two = ([{k: v for k, v in line.items() if k not in passing} for line in run.metrics] for run in (whole, parts))
    assert one == two


@pytest.mark.parametrize(
    ("train", "data", "words"),
    [
        ({"accumulate": 2}, {}, "whole batch"),
        ({"test": True}, {}, "no accuracy"),
        ({"strategy": "fsdp"}, {}, "DDP"),
        ({}, {"split_by": "class"}, "would read labels"),
    ],
)
def test_what_cannot_be_meant_is_refused(train: dict[str, Any], data: dict[str, Any], words: str) -> None:
    config = tiny()
    with pytest.raises(ConfigError, match=words):
        dataclasses.replace(config, train=dataclasses.replace(config.train, **train), data=dataclasses.replace(config.data, **data))


def test_the_test_pictures_are_opened_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("vitral.study.probe"), "_ENOUGH", 1)
    assert main(["pretrain", "digits", "--epochs", "0.1", "--test", "--json", "--out", str(tmp_path / "run"), *SMALL]) == 0
    folder = RunFolder.open(tmp_path / "run")
    right, nearest = (folder.answers(split) for split in ("test", "neighbours"))
    told = json.loads(capsys.readouterr().out)["probe"]
    assert len(right.labels) == 360 and told["test"] == pytest.approx(right.right.mean())
    assert (nearest.labels == right.labels).all() and 0.1 < told["test_neighbours"] == pytest.approx(nearest.right.mean())
    assert list(folder.environment["data"]["opened"]) == ["test"] and folder.faults() == [] and folder.finished


def test_a_test_without_a_probe_is_refused_before_anything_is_spent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "digits", "--test", "--skip-probe", "--out", str(tmp_path / "run"), *SMALL]) == 2
    assert "leave one of them out" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_a_run_is_not_gone_on_with_by_another_method(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "digits", "--method", "mae", "--out", str(run_folder), "--resume"]) == 2
    said = capsys.readouterr().err
    assert "a pre-training by lejepa, not by mae: go on with: vitral pretrain digits --out" in said and said.count("\n") == 1


def test_strength_is_chosen_by_enough_pictures() -> None:
    """Of few pictures a tenth is a handful, which are as right with one strength as with another: then the strongest would be taken."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 2
    common = torch.randn(300, generator=draw)
    features = torch.stack([common + 0.02 * (2.0 * labels - 1) + 0.01 * torch.randn(300, generator=draw), common], 1)
    found = linear_of((features, labels), 2, 0)
    rights = [float(fit_linear((features, labels), None, 2, strength)(features).eq(labels).float().mean()) for strength in (1.0, 0.1)]
    assert max(rights) < 0.8 < 0.95 < float(found(features).eq(labels).float().mean()) and found.strength < 0.01


def test_a_start_that_has_positions_tells_digits_apart_before_it_learns() -> None:
    """What pre-training on digits starts from: with positions too small to see, the same probe has 77 %."""
    settled = prepare(dataclasses.replace(pretraining("digits"), train=TrainConfig(test=False)), torch.device("cpu"))
    data = open_data(settled.config.data, preprocess=settled.preprocess)
    learnt, judged = (
        read_features(settled.model, evaluation_loader(split, data.preprocess, torch.device("cpu"), 128), quiet=True)
        for split in (data.train, data.validation)
    )
    assert fit_linear(learnt, judged, 10)(judged[0]).eq(judged[1]).float().mean() > 0.9


def test_seconds_are_a_budget_with_the_schedule_scaled_to_it(tmp_path: Path) -> None:
    run = fit(tiny(max_seconds=1.0, epochs=1e6, evaluate_every=1000.0), out=tmp_path / "run", quiet=True)
    assert 0.9 < run.metrics[-1]["seconds"] < 3 and run.metrics[-1]["lr"] < 0.3 * 2e-3
    again = dataclasses.replace(tiny(max_seconds=30.0, epochs=1e6), weights=str(run.path))
    (said,) = [line for line in before(prepare(again, torch.device("cpu"))) if line.startswith("trains on")]
    assert f"({run.metrics[-1]['epoch']:g} epochs)" in said and "schedule over 30 s" in said and "1e+06" not in said


def test_a_masked_autoencoder_shows_what_it_makes_of_hidden_patches(tmp_path: Path) -> None:
    config = pretraining("digits", "mae")
    base = tiny()
    assert config.pretrain is not None
    config = dataclasses.replace(base, pretrain=dataclasses.replace(config.pretrain, decoder_width=16, decoder_depth=1))
    run = fit(config, out=tmp_path / "run", quiet=True)
    shown, rebuilt, picture = run.rebuilt
    assert shown.shape == rebuilt.shape == picture.shape == (8, 8, 8, 1) and np.isnan(shown).mean() == 0.5
    assert not np.isnan(rebuilt).any()
    draw_rebuilt(RunFolder(run.path), run.rebuilt)
    assert (run.path / "figures" / "learning-rebuilt.png").is_file()
    assert "given" not in (run.path / "figures" / "learning-rebuilt.json").read_text(), "digits are rebuilt with their mean and spread"
