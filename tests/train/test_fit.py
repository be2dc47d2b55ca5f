"""fit() with what a program brings itself: a Dataset, a model, a module."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_model
from sklearn.datasets import load_digits
from tests.train.conftest import digest, tiny
from tests.train.stops import signalled_after, stopped_after
from torch import nn
from torch.utils.data import Dataset

from vitral.base.errors import DataError, UsageError
from vitral.build import create
from vitral.cli import main
from vitral.config import DataConfig
from vitral.run.folder import RunFolder
from vitral.train.evaluate import evaluate
from vitral.train.fit import Run, fit
from vitral.weights.checkpoint import save
from vitral.weights.load import load


class Digits(Dataset):
    """Scikit-learn's digits as uint8 tensors (1, 8, 8); every third one, for speed."""

    def __init__(self) -> None:
        digits = load_digits()
        self.images = torch.from_numpy((digits.images * 255 / 16).round().astype(np.uint8))[::3, None]
        self.targets = digits.target[::3]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return self.images[number], int(self.targets[number])


class Net(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.LazyLinear(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, classes))
        self.layers(torch.zeros(1, 1, 8, 8))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def test_a_dataset_of_ones_own(out: Path) -> None:
    run = fit(tiny(epochs=2), out, quiet=True, data=Digits())
    folder = RunFolder.open(out)
    assert folder.settled.data.name == "own:Digits"
    assert (folder.settled.model.image_size, folder.settled.model.channels, folder.settled.model.classes) == ((8, 8), 1, 10)
    assert run.test["split"] == "test" and folder.environment["data"]["train"] + folder.environment["data"]["validation"] == 479
    assert digest(load(out)) == digest(run.model)


def test_a_model_that_a_program_gave_is_asked_for_again_in_one_line(out: Path) -> None:
    given = fit(tiny(epochs=0.1), out.with_name("first"), quiet=True).model
    fit(tiny(epochs=0.1), out, quiet=True, model=given)
    folder = RunFolder.open(out)
    assert folder.asked is not None and folder.asked.config.weights == "own:ViT"
    assert folder.command is None, "no command can train it again"
    with pytest.raises(FileNotFoundError, match="own:ViT"):
        fit(folder.asked.config, out.with_name("again"), quiet=True)
    assert not out.with_name("again").exists()


def test_going_on_needs_the_same_data_again(out: Path) -> None:
    config = tiny(epochs=2, checkpoint_every=0.0)
    whole = fit(config, out.with_name("whole"), quiet=True, data=Digits())
    with stopped_after(5):
        fit(dataclasses.replace(config, train=dataclasses.replace(config.train)), out, quiet=True, data=Digits())
    with pytest.raises(UsageError, match="own:Digits"):
        fit(config, out, resume=True, quiet=True)
    assert digest(fit(config, out, resume=True, quiet=True, data=Digits()).model) == digest(whole.model)
    with pytest.raises(DataError, match="program"):
        fit(RunFolder.open(out).settled, out.with_name("again"), quiet=True)


def test_a_model_to_start_from_stays_as_it_is(out: Path) -> None:
    start = create("digits", width=16, depth=1, heads=2, mlp_width=16, classes=7)
    before = digest(start)
    run = fit(tiny(epochs=0.5), out, quiet=True, model=start)
    assert digest(start) == before and start.config.classes == 7
    assert run.model.config.classes == 10 and run.model.config.depth == 1
    assert "head replaced: 7 → 10 classes" in " ".join(run.model.origin.changes)
    assert RunFolder.open(out).settled.weights == "own:ViT"
    assert RunFolder.open(out).settled.train.head_start == "as-is", "its features are random: nothing for a probe"
    fit(tiny(epochs=0.1), out.with_name("next"), quiet=True, model=run.model.with_head(3), data=Digits())
    assert RunFolder.open(out.with_name("next")).settled.train.head_start == "probe", "these have learnt"


def test_a_module_of_ones_own(out: Path) -> None:
    torch.manual_seed(0)
    module = Net()
    run = fit(tiny(epochs=8, snapshots=2, ema=0.9, lr=1e-2), out, quiet=True, model=module, data=Digits())
    assert run.model.module is module and run.test["accuracy"] > 0.5
    fresh = Net()
    load_model(fresh, out / "model.safetensors")
    assert digest(fresh) == digest(module.cpu()), "its own names, not ours"
    assert evaluate(run.model, Digits()).top1 > 0.5
    folder = RunFolder.open(out)
    assert folder.settled.model.family == "own" and folder.environment["forward_flops"] is None and len(folder.snapshots()) == 2
    with pytest.raises(UsageError, match="module"):
        load(out)


def test_a_module_that_does_not_fit_the_data(out: Path) -> None:
    with pytest.raises(UsageError, match=r"\(2, 3\)"):
        fit(tiny(), out, quiet=True, model=Net(3), data=Digits())
    assert not out.exists()


def drawn(photos: Path) -> Path:
    for label, name in enumerate(("cat", "dog")):
        (photos / name).mkdir(parents=True)
        for number in range(12):
            Image.new("RGB", (16 + label, 16), (number, 0, 0)).save(photos / name / f"{number}.bmp")
    return photos


def test_data_that_changed_under_a_run_is_refused(out: Path, tmp_path: Path) -> None:
    """Counts and class names agree, and yet: two classes swapped, or files replaced, would be learnt and validated on as one."""
    photos = drawn(tmp_path / "photos")
    config = dataclasses.replace(tiny(epochs=2, checkpoint_every=0.0, batch_size=8), data=DataConfig(name=f"folder:{photos}"))
    with stopped_after(2):
        fit(config, out, quiet=True)
    assert set(RunFolder.open(out).environment["data"]["fingerprint"]) == {"train", "validation"}
    (photos / "cat").rename(photos / "x")
    (photos / "dog").rename(photos / "cat")
    (photos / "x").rename(photos / "dog")
    with pytest.raises(DataError, match="others"):
        fit(config, out, resume=True, quiet=True)
    (photos / "cat").rename(photos / "x")
    (photos / "dog").rename(photos / "cat")
    (photos / "x").rename(photos / "dog")
    assert fit(config, out, resume=True, quiet=True).test["split"] == "test"


def test_other_content_under_the_same_names_is_refused_where_the_content_was_asked_for(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = drawn(tmp_path / "photos")
    words = ["train", "digits", "--data", f"folder:{photos}", "--fingerprint", "content", "--epochs", "2", "--batch-size", "8"]
    words += ["--set", "width=8", "depth=1", "heads=1", "mlp_width=8", "--device", "cpu", "--quiet", "--out", str(out)]
    with signalled_after(2):
        assert main(words) == 1
    file = photos / "cat" / "0.bmp"
    original = file.read_bytes()
    file.write_bytes(bytes([*original[:-9], 99, *original[-8:]]))  # as long as before
    assert main([*words, "--resume"]) == 1
    assert "are others than when" in (said := capsys.readouterr().err) and "names, sizes, classes or content" in said
    file.write_bytes(original)
    assert main([*words, "--resume"]) == 0


@pytest.mark.parametrize("given, told", [("finetune", "not 'finetune'"), (None, "not a NoneType"), ({"epochs": 3}, "not a dict")])
def test_what_is_no_config_is_refused_with_how_to_make_one(given, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        fit(given)


def test_a_place_that_cannot_be_had_is_refused_before_features_are_read(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(create("tiny", image_size=8, channels=1, classes=3), out.with_name("weights"))
    config = tiny(epochs=0.1, weights=str(out.with_name("weights")))
    monkeypatch.setattr("vitral.train.fit.start_head", lambda *_: (_ for _ in ()).throw(AssertionError("features were read")))
    monkeypatch.setattr("vitral.train.fit.prepare", lambda *_: (_ for _ in ()).throw(AssertionError("data were read")))
    out.with_name("file").write_text("a letter")
    with pytest.raises(UsageError, match="file"):
        fit(config, out.with_name("file") / "run", quiet=True)
    monkeypatch.setattr("vitral.base.files.os.access", lambda *_: False)
    with pytest.raises(DataError, match="permissions"):
        fit(config, out, quiet=True)
    monkeypatch.undo()
    monkeypatch.setattr("vitral.train.fit.start_head", lambda *_: (_ for _ in ()).throw(AssertionError("features were read")))
    other = RunFolder.reserve(out, "digits")
    with pytest.raises(UsageError, match="in use"):
        fit(config, out, quiet=True)
    other.close()
    assert not out.exists()


def test_a_run_that_is_refused_leaves_nothing(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(out.parent)
    monkeypatch.setattr("vitral.train.fit.Engine", lambda *_: (_ for _ in ()).throw(UsageError("refused")))
    for place in (None, out / "deep" / "run"):
        with pytest.raises(UsageError, match="refused"):
            fit(tiny(epochs=0.1), place, quiet=True)
    assert not Path("runs").exists() and not out.exists()


def test_several_processes_on_a_mac_are_sent_to_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitral.train.fit.pick_device", lambda name: torch.device("mps"))
    monkeypatch.setattr("vitral.train.fit.World", lambda *_: SimpleNamespace(many=True, main=True, size=2, close=lambda: None))
    with pytest.raises(UsageError, match="Apple"):
        fit(tiny(), out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_run_shows_how_each_split_ended() -> None:
    lines = [
        {"split": "train", "epoch": 1, "loss": 2.0, "accuracy": 0.1, "seconds": 1.0},
        {"split": "train", "epoch": 2, "loss": 1.0, "accuracy": 0.5, "seconds": 2.0},
        {"split": "test", "epoch": 2, "loss": 0.5, "accuracy": 0.75, "seconds": 2.0},
    ]
    run = Run(Path("runs/<mine>"), lines, create("tiny", classes=2))
    assert repr(run) == "Run('runs/<mine>', 3 lines of metrics)", "not every line and every layer"
    shown = run._repr_html_()
    assert "<th>split</th><th>epoch</th><th>accuracy</th>" in shown and "runs/&lt;mine&gt;" in shown
    assert "<td>train</td><td>2</td><td>0.5</td>" in shown and "<td>test</td><td>2</td><td>0.75</td>" in shown
    assert run.test is lines[-1] and "2 classes" in shown
