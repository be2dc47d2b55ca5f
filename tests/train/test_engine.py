from __future__ import annotations

import dataclasses
import itertools
import json
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vitral.base.errors import ConfigError, DataError, UsageError, VitralError
from vitral.build import create
from vitral.config import RunConfig
from vitral.data.splits.open import Data
from vitral.presets.runs import pretraining
from vitral.report.run import write_run_report
from vitral.run.folder import RunFolder
from vitral.train import engine
from vitral.train.evaluate import evaluate, evaluate_loader
from vitral.train.fit import Run, fit
from vitral.train.prepare import prepare
from vitral.train.steps import Stepper
from vitral.train.tasks.task import Outcome
from vitral.weights.checkpoint import load_checkpoint
from vitral.weights.load import load

from .conftest import digest, tiny
from .stops import seconds_per_step, signalled_after, stopped_after

KEYS = {"step", "epoch", "split", "loss", "accuracy", "lr", "images_per_second", "seconds"}


def test_a_run_folder_holds_everything_after_it(trained: Run):
    assert {path.name for path in trained.path.iterdir()} >= {
        "config.json",
        "env.json",
        "metrics.jsonl",
        "model.safetensors",
        "state",
        "snapshots",
    }
    lines = [json.loads(line) for line in (trained.path / "metrics.jsonl").read_text().splitlines()]
    assert lines == trained.metrics and all(set(line) >= KEYS for line in lines)
    assert [line["split"] for line in lines].count("test") == 1 and lines[-1]["split"] == "test"
    assert [line["step"] for line in lines] == sorted(line["step"] for line in lines)
    training = [line["loss"] for line in lines if line["split"] == "train"]
    assert sum(training[-10:]) / 10 < sum(training[:10]) / 10 - 0.05
    environment = json.loads((trained.path / "env.json").read_text())
    assert environment["compile_seconds"] == 0 and environment["data"]["opened"]["test"] and environment["trained_parameters"] > 0
    stored = json.loads((trained.path / "config.json").read_text())
    assert stored["train"]["seed"] == 0 and stored["origin"]["mean"]["declared"] is True


def test_the_saved_model_is_the_tested_one(trained: Run):
    model = load_checkpoint(trained.path)
    assert digest(model) == digest(trained.model) and not trained.model.training
    kept = RunFolder(trained.path).answers()
    assert len(kept.paths) == len(kept.labels) and kept.top is not None and (kept.top[:, 0] == kept.predictions).all()
    assert kept.pictures is not None and set(kept.pictures) == set(kept.shown().tolist()), "a report need not open the data again"
    answers = np.load(trained.path / "test.npz")
    assert (answers["predictions"] == answers["labels"]).mean() == pytest.approx(trained.test["accuracy"])
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(model(images), trained.model(images))
    assert model.origin.classes.value == tuple("0123456789")


def test_snapshots_are_whole_models_from_the_untrained_one_on(trained: Run):
    folders = sorted((trained.path / "snapshots").iterdir())
    assert len(folders) == 4 and folders[0].name == "step-0000000"
    assert digest(load_checkpoint(folders[-1])) == digest(trained.model) != digest(load_checkpoint(folders[0]))


def test_snapshots_of_a_run_that_the_clock_ends_are_spread_over_it(out: Path):
    """A clock that a step moves on by a second: 40 of them end the run, and its million epochs plan nothing."""
    with seconds_per_step():
        fit(tiny(epochs=1e6, max_seconds=40.0, snapshots=8), out=out, quiet=True)
    steps = [step for step, _ in RunFolder(out).snapshots()]
    assert steps[:2] == [0, 1] and steps[-1] == 40 and len(steps) >= 7


def test_same_seed_same_bits_with_a_bar_and_with_workers(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plain = fit(tiny(placement="stream", workers=0), out=out, quiet=True)
    monkeypatch.setattr("vitral.base.progress._on_terminal", lambda: True)
    shown = fit(tiny(placement="stream", workers=2), out=tmp_path / "bar", quiet=False)
    device = fit(tiny(placement="device"), out=tmp_path / "device", quiet=True)
    other = fit(tiny(placement="device", seed=1), out=tmp_path / "other", quiet=True)
    assert digest(plain.model) == digest(shown.model) == digest(device.model) != digest(other.model)


def test_pieces_of_a_batch_are_the_batch(out: Path, tmp_path: Path):
    config = tiny(mixup=0.5, class_weights=True)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, dropout=0.0))
    whole = fit(config, out=out, quiet=True)
    pieces = fit(dataclasses.replace(config, train=dataclasses.replace(config.train, accumulate=4)), out=tmp_path / "pieces", quiet=True)
    for a, b in zip(whole.model.state_dict().values(), pieces.model.state_dict().values(), strict=True):
        assert torch.allclose(a, b, atol=2e-4)
    assert whole.metrics[3]["loss"] == pytest.approx(pieces.metrics[3]["loss"], rel=1e-4)


def test_control_c_saves_says_how_to_go_on_and_goes_on_exactly(out: Path, trained: Run, capfd: Any):
    config = tiny(epochs=3.0, snapshots=4)
    before = signal.getsignal(signal.SIGINT)  # a shell may have started us with SIGINT ignored
    with (
        pytest.raises(VitralError, match=r"SIGINT at step 13 .* --resume"),
        signalled_after(13, signal.SIGINT),
    ):
        fit(config, out=out, quiet=True)
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(UsageError, match="--resume"):
        fit(config, out=out, quiet=True)
    with pytest.raises(UsageError, match="lr ="):
        fit(dataclasses.replace(config, train=dataclasses.replace(config.train, lr=0.5)), out=out, resume=True, quiet=True)
    gone_on = fit(config, out=out, resume=True)
    assert "going on at step 13" in capfd.readouterr().err
    assert digest(gone_on.model) == digest(trained.model)
    same = ("step", "split", "loss", "accuracy", "lr")
    assert [[line[key] for key in same] for line in gone_on.metrics] == [[line[key] for key in same] for line in trained.metrics]
    assert fit(config, out=out, resume=True).test == gone_on.test
    assert "nothing to do" in capfd.readouterr().err


def test_a_loss_that_is_no_number_names_step_batch_and_remedy(out: Path, monkeypatch: pytest.MonkeyPatch):
    step, seen = Stepper.step, []

    def broken(self: Stepper, batch: Any, factor: float, keep: float | None) -> Outcome:
        seen.append(batch.indices.tolist())
        outcome = step(self, batch, factor, keep)
        return outcome._replace(loss=outcome.loss * float("nan")) if len(seen) == 8 else outcome

    monkeypatch.setattr(Stepper, "step", broken)
    with pytest.raises(VitralError, match="step 7") as caught:
        fit(tiny(), out=out, quiet=True)
    assert ", ".join(map(str, seen[7][:8])) in caught.value.message
    assert "--lr" in caught.value.hint and "--clip" in caught.value.hint
    assert json.loads((out / "state" / "a" / "manifest.json").read_text())["step"] == 0 and not (out / "model.safetensors").exists()


@pytest.mark.parametrize("clip", [None, 1.0])  # clipping spreads it over all layers at once
def test_a_gradient_that_is_no_number_is_found_at_its_step_and_layer(out: Path, monkeypatch: pytest.MonkeyPatch, clip: float | None):
    step, seen, poisoned = Stepper.step, [], [False]

    def broken(self: Stepper, batch: Any, factor: float, keep: float | None) -> Outcome:
        if not seen:
            weight = dict(self.model.named_parameters())["blocks.0.mlp.expand.weight"]
            weight.register_hook(lambda gradient: gradient * float("nan") if poisoned[0] else gradient)
        seen.append(batch.indices.tolist())
        poisoned[0] = len(seen) > 5 and seen[-1] == seen[5]
        return step(self, batch, factor, keep)

    monkeypatch.setattr(Stepper, "step", broken)
    with pytest.raises(VitralError, match=r"blocks\.0\.mlp\.expand\.weight at step 5") as caught:
        fit(tiny(clip=clip), out=out, quiet=True)
    assert "the loss is nan at step 6 " in caught.value.message
    assert json.loads((out / "state" / "a" / "manifest.json").read_text())["step"] == 0 and not (out / "model.safetensors").exists()


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_out_of_memory_says_what_would_fit(out: Path, monkeypatch: pytest.MonkeyPatch, error: Exception):
    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(Stepper, "step", full)
    with pytest.raises(VitralError, match=r"memory .* 64") as caught:
        fit(tiny(), out=out, quiet=True)
    assert "--accumulate 2" in caught.value.hint and "--batch-size 32" in caught.value.hint


def test_patience_and_best_look_at_validation_alone(out: Path, monkeypatch: pytest.MonkeyPatch):
    opened: list[tuple[str, int]] = []
    real = Data.open

    def watched(self: Data, split: str) -> Any:
        opened.append((split, (out / "metrics.jsonl").read_text().count('"validation"')))
        return real(self, split)

    monkeypatch.setattr(Data, "open", watched)
    result = fit(tiny(epochs=40.0, patience=2, keep="best", lr=1e-9, adam_lr=1e-9, ema=None), out=out, quiet=True)
    validations = [line for line in result.metrics if line["split"] == "validation"]
    assert len(validations) == 3 and set(opened) == {("test", 3)}, "test is opened when the last validation is in the journal"
    with pytest.raises(ConfigError, match="validation"):
        fit(tiny(validation=0.0, keep="best"), out=out.parent / "none", quiet=True)


def test_all_training_pictures_may_be_learnt_from(out: Path):
    result = fit(tiny(validation=0.0), out=out, quiet=True)
    assert {line["split"] for line in result.metrics} == {"train", "test"} and result.metrics[-1]["split"] == "test"
    environment = RunFolder(out).environment
    assert environment["data"]["train"] == 1437 and environment["data"]["validation"] == 0
    times = environment["times"]
    assert times["compiled"] is None and not times["resumed"] and 0 < times["training"] + times["test"] < times["total"]
    with pytest.raises(ConfigError, match="patience"):
        fit(tiny(validation=0.0, patience=3), out=out.parent / "none", quiet=True)


def test_choosing_opens_nothing_and_confirming_both_from_the_same_weights(out: Path):
    chosen = fit(tiny(stage="choose"), out=out, quiet=True)
    assert {line["split"] for line in chosen.metrics} == {"train", "validation"} and RunFolder(out).finished
    assert not list(out.glob("test.*")) and not list(out.glob("sealed.*")) and RunFolder(out).environment["data"]["opened"] == {}
    judged = RunFolder(out).answers("validation")
    assert np.array_equal(judged.predictions, evaluate(chosen.model, "digits", "validation").predictions) and len(judged.labels) == 144
    with pytest.raises(ConfigError, match="stage = choose"):
        fit(dataclasses.replace(tiny(stage="confirm"), weights=str(out)), out=out.parent / "leak", quiet=True)
    with pytest.raises(DataError, match="closed"):
        evaluate(chosen.model, "digits", "test")
    assert len(evaluate(chosen.model, "digits").labels) == 144, "scored on what it may see"
    confirmed = fit(tiny(stage="confirm", validation=0.0), out=out.parent / "confirmed", quiet=True)
    assert [line["split"] for line in confirmed.metrics[-2:]] == ["sealed", "test"]
    folder = RunFolder(confirmed.path)
    assert folder.finished and set(folder.environment["data"]["opened"]) == {"sealed", "test"} and not folder.faults()
    again = evaluate(confirmed.model, "digits", "sealed")
    assert np.array_equal(again.predictions, folder.answers("sealed").predictions) and len(again.labels) == 144
    assert len(folder.answers().labels) == 360 and "on the sealed pictures" in write_run_report(folder.path).read_text()
    with pytest.raises(DataError, match="sealed"):
        evaluate(fit(tiny(epochs=0.1), out=out.parent / "open", quiet=True).model, "digits", "sealed")


def script_scores(monkeypatch: pytest.MonkeyPatch, *given: float) -> list[dict[str, torch.Tensor]]:
    """Let validations score as `given`; the weights at each of them come into the returned list."""
    kept: list[dict[str, torch.Tensor]] = []

    def scripted(model: torch.nn.Module, *rest: Any, **options: Any) -> Any:
        result = evaluate_loader(model, *rest, **options)
        if len(kept) == len(given):  # the last one is of test
            return result
        kept.append({name: value.clone() for name, value in model.state_dict().items()})
        return dataclasses.replace(result, top1=given[len(kept) - 1])

    monkeypatch.setattr("vitral.train.tasks.classify.evaluate_loader", scripted)
    return kept


def test_the_best_weights_are_those_of_the_best_validation(out: Path, monkeypatch: pytest.MonkeyPatch):
    kept = script_scores(monkeypatch, 0.3, 0.9, 0.5, 0.9)
    result = fit(tiny(epochs=2.0, keep="best"), out=out, quiet=True)
    assert len(kept) == 4
    assert all(torch.equal(value, kept[1][name]) for name, value in result.model.state_dict().items())


def test_the_best_weights_outlive_an_interruption(out: Path, monkeypatch: pytest.MonkeyPatch):
    kept = script_scores(monkeypatch, 0.3, 0.9, 0.5, 0.6)
    config = tiny(epochs=2.0, keep="best")
    with stopped_after(25):
        fit(config, out=out, quiet=True)
    result = fit(config, out=out, resume=True, quiet=True)
    assert len(kept) == 4
    assert all(torch.equal(value, kept[1][name]) for name, value in result.model.state_dict().items())


def test_lines_are_means_over_their_steps_and_mixing_ends_when_told(out: Path, monkeypatch: pytest.MonkeyPatch):
    step, losses, mixed = Stepper.step, [], []

    def seen(self: Stepper, batch: Any, factor: float, keep: float | None) -> Outcome:
        outcome = step(self, batch, factor, keep)
        losses.append(outcome.loss.item())
        mixed.append(batch.labels_b is not None)
        return outcome

    monkeypatch.setattr(Stepper, "step", seen)
    monkeypatch.setattr(engine, "LINES", 6)
    metrics = fit(tiny(mixup=0.5, cutmix=0.5, mixing_off=0.25, evaluate_every=0.3), out=out, quiet=True).metrics
    total = len(losses)
    assert mixed == [number < 0.75 * total for number in range(total)]
    ends = [0, *(line["step"] for line in metrics if line["split"] == "train")]
    means = [sum(losses[low:high]) / (high - low) for low, high in itertools.pairwise(ends)]
    assert ends[-1] == total > len(means) + 5
    assert [line["loss"] for line in metrics if line["split"] == "train"] == pytest.approx(means)


def test_a_budget_of_seconds_ends_the_schedule_with_it(out: Path):
    result = fit(tiny(epochs=10_000.0, max_seconds=1.0, schedule="linear"), out=out, quiet=True)
    assert 0.9 < result.test["seconds"] < 3
    assert result.test["lr"] < 0.3 * max(line["lr"] for line in result.metrics)


def test_a_budget_that_runs_out_while_the_device_catches_up_is_validated_all_the_same(out: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine, "GLANCE", 0.0)
    monkeypatch.setattr(Stepper, "wait", lambda _: time.sleep(0.6))
    metrics = fit(tiny(epochs=10_000.0, max_seconds=0.5), out=out, quiet=True).metrics
    assert [line["split"] for line in metrics[-3:]] == ["train", "validation", "test"] and metrics[-3]["step"] == metrics[-1]["step"] > 0


def test_a_fraction_of_an_epoch_and_token_dropping(out: Path):
    result = fit(tiny(epochs=0.25, token_drop=0.5), out=out, quiet=True)
    assert result.test["step"] == 5 and result.test["epoch"] == 0.25


@pytest.mark.parametrize("setting", ["token_drop", "token_drop_after"])
@pytest.mark.parametrize(
    "own, told", [({"family": "cnn"}, "needs a model with tokens"), ({"positions": "relative"}, "relative positions are of whole grids")]
)
def test_patches_are_left_out_only_of_what_has_them_one_by_one(setting: str, own: dict[str, str], told: str, out: Path):
    config = tiny(**{setting: 0.5})
    with pytest.raises(ConfigError, match=f"{told}.*token_drop = 0"):
        fit(dataclasses.replace(config, model=dataclasses.replace(config.model, **own)), out=out, quiet=True)


def test_fine_tuning_attention_leaves_everything_else_as_it_was(out: Path, trained: Run, capfd: Any):
    config = dataclasses.replace(tiny(epochs=0.5, tune="attention"), weights=str(trained.path))
    result = fit(config, out=out)
    changed = {name for name, value in result.model.state_dict().items() if not torch.equal(value, trained.model.state_dict()[name])}
    learning = {name for name, _ in result.model.named_parameters() if ".attention." in name or name.startswith("head.")}
    assert changed == learning
    assert "parameters learn (attention)" in capfd.readouterr().err
    assert result.model.origin.mean.value == trained.model.origin.mean.value


def test_distillation_and_tensorboard(out: Path, trained: Run):
    pytest.importorskip("tensorboard")
    result = fit(tiny(epochs=0.5, teacher=str(trained.path), teacher_weight=0.9, tensorboard=True), out=out, quiet=True)
    assert result.test["split"] == "test" and list((out / "tensorboard").iterdir())


def test_default_folders_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    paths = [fit(tiny(epochs=0.1, test=False), quiet=True).path for _ in range(2)]
    assert paths == [Path("runs/digits"), Path("runs/digits-2")]
    assert fit(tiny(epochs=0.1, test=False), resume=True, quiet=True).path == Path("runs/digits-2")
    with pytest.raises(UsageError, match="--resume"):
        fit(tiny(), out=tmp_path / "nowhere", resume=True, quiet=True)


@pytest.mark.parametrize(
    ("part", "changes"),
    [("data", {"augment": "stong"}), ("train", {"teacher": "nowhere"}), ("train", {"keep": "best"})],
)
def test_a_refused_run_leaves_no_folder(out: Path, part: str, changes: dict[str, Any]):
    config = tiny(epochs=1)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, validation=0.0))
    with pytest.raises(VitralError):
        fit(dataclasses.replace(config, **{part: dataclasses.replace(getattr(config, part), **changes)}), out, quiet=True)
    assert not (out / "config.json").exists()


def test_a_file_in_the_place_of_the_folder(tmp_path: Path):
    (tmp_path / "taken").write_text("mine")
    for place in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(UsageError, match="taken"):
            fit(tiny(epochs=1), place, quiet=True)
    assert (tmp_path / "taken").read_text() == "mine"


# ---- LoRA ------------------------------------------------------------------------------------------------------------------------


def lora(weights: Path, **changes: Any) -> RunConfig:
    settings = {"epochs": 1.0, "tune": "lora", "lora_rank": 4, "lr": 1e-2} | changes
    return dataclasses.replace(tiny(**settings), weights=str(weights))


@pytest.mark.parametrize("where", ["attention", "mlp"])
def test_lora_moves_what_it_was_asked_to_and_leaves_a_plain_model(out: Path, trained: Run, capfd: Any, where: str):
    result = fit(lora(trained.path, lora_where=where, ema=0.9, snapshots=2), out=out)
    before = trained.model.state_dict()
    changed = {name for name, value in load(out).state_dict().items() if not torch.equal(value, before[name])}
    layers = {"attention": ("qkv.weight", "projection.weight"), "mlp": ("expand.weight", "contract.weight")}[where]
    assert changed == {name for name in before if name.startswith("head.") or (name.startswith("blocks.") and name.endswith(layers))}
    sizes = {"attention": 4 * ((16 + 48) + (16 + 16)), "mlp": 4 * 2 * (16 + 16)}
    assert f"{2 * sizes[where] + 170:,} of" in capfd.readouterr().err  # two blocks, and a head of 16 × 10 + 10
    assert result.model(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    for _, folder in RunFolder(out).snapshots():
        assert load(folder).state_dict().keys() == before.keys()


def test_what_lora_saves_answers_as_what_it_tested(out: Path, trained: Run):
    """The test split is answered by the thin matrices themselves, the saved model is their sum."""
    result = fit(lora(trained.path), out=out, quiet=True)
    scored = evaluate(load(out), "digits", split="test", device="cpu")
    assert scored.loss == pytest.approx(result.test["loss"], abs=1e-5) and scored.top1 == result.test["accuracy"]


def test_lora_goes_on_exactly(out: Path, trained: Run):
    whole = fit(lora(trained.path, checkpoint_every=0.0, keep="best"), out=out.parent / "whole", quiet=True)
    with stopped_after(7):
        fit(lora(trained.path, checkpoint_every=0.0, keep="best"), out=out, quiet=True)
    again = fit(lora(trained.path, checkpoint_every=0.0, keep="best"), out=out, resume=True, quiet=True)
    assert digest(again.model) == digest(whole.model) != digest(trained.model)


def test_lora_is_refused_by_name_where_it_makes_no_sense(out: Path):
    with pytest.raises(ConfigError, match="tune = lora"):
        fit(tiny(tune="lora", lora_rank=4), out=out, quiet=True)
    with pytest.raises(ConfigError, match=r"tune = lora.*cnn"):
        fit(tiny(tune="lora"), out=out, quiet=True, model=create("cnn", image_size=8, channels=1, classes=10))
    assert not out.exists()


@pytest.mark.parametrize("method", ["lejepa", "dino", "mae"])
def test_lora_learns_without_labels(out: Path, trained: Run, method: str):
    base = pretraining("digits", method)
    small = {"projection": 8, "projection_hidden": 16, "prototypes": 16, "decoder_width": 16}
    config = dataclasses.replace(
        lora(trained.path, epochs=0.2, test=False),
        pretrain=dataclasses.replace(base.pretrain, **small),
        data=dataclasses.replace(base.data, name="digits"),
    )
    result = fit(config, out=out, quiet=True)
    before, after = trained.model.state_dict(), load(out).state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed == {name for name in after if name.endswith(("attention.qkv.weight", "attention.projection.weight"))}
    assert result.model.config.classes == 0


def test_no_epochs_leave_the_model_as_it_starts(out: Path):
    config = tiny(epochs=0)
    result = fit(config, out=out, quiet=True)
    assert [(line["split"], line["step"], line["seconds"]) for line in result.metrics] == [("validation", 0, 0.0), ("test", 0, 0.0)]
    assert digest(result.model) == digest(prepare(config, torch.device("cpu")).model) and RunFolder.open(out).finished
