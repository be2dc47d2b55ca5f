from __future__ import annotations

import dataclasses
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from vitral.base.errors import ConfigError, VitralError
from vitral.base.origin import fact
from vitral.base.text import byte_size
from vitral.build import create
from vitral.cli.train import parse
from vitral.config import DataConfig, ModelConfig, RunConfig, from_dict, to_dict
from vitral.presets.models import MODELS
from vitral.presets.runs import RUNS, change, run
from vitral.train.advice import headline, parameters
from vitral.train.fit import Run, fit
from vitral.train.prepare import prepare
from vitral.weights.checkpoint import save

CPU = torch.device("cpu")
SHARED = Path(os.environ.get("VITRAL_SHARED", Path(__file__).parents[2] / "../shared"))
WEIGHTS, FLOWERS = SHARED / "weights/vit_tiny_patch16_224.safetensors", SHARED / "data/flowers102-176px.tar"
CLASSES, TRAINING, TESTING = 5, 12, 8


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of coloured noise of various sizes."""
    folder = tmp_path_factory.mktemp("photographs")
    draw = np.random.default_rng(0)
    for number, name in enumerate(("red", "green", "blue")):
        (folder / name).mkdir()
        for index in range(12):
            pixels = draw.integers(0, 60, (40 + index, 50, 3), dtype=np.uint8)
            pixels[:, :, number] += 150
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    return folder


def test_a_preset_follows_other_data_in_classes_channels_and_size(photographs: Path, tmp_path: Path):
    config = change(run("digits", epochs=0.3, batch_size=8, threads=1, device="cpu"), data=DataConfig(name=f"folder:{photographs}"))
    result = fit(config, out=tmp_path / "run", quiet=True)
    model = result.model.config
    assert (model.classes, model.channels) == (3, 3) and model.image_size == (224, 224)
    assert model.grid[0] * model.grid[1] <= 256
    assert result.model.origin.classes.value == ("blue", "green", "red")


@pytest.mark.parametrize(
    ("flags", "size", "depth"),
    [
        (["--name", "foo"], 224, 4),
        (["--set", "depth=2"], 224, 2),
        (["--patch-size", "4"], 224, 4),
        (["--image-size", "32"], 32, 4),
        (["--image-size", "8"], 8, 4),
        (["--set", "image_size=8,8"], 8, 4),
        (["--model", "tiny"], 224, MODELS["tiny"].depth),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_size_and_channels_follow_other_data_field_by_field(flags: list[str], size: int, depth: int, photographs: Path):
    config = parse(["digits", "--data", f"folder:{photographs}", *flags])[0]
    setup = prepare(from_dict(RunConfig, to_dict(config)), CPU)
    model = setup.config.model
    assert (model.channels, model.classes, model.image_size, model.depth) == (3, 3, (size, size), depth)
    patches = [note for note in setup.notes if "batch" not in note]
    assert len(patches) == (size == 224) and all("grow to 14×14" in note for note in patches)
    assert setup.config.train.batch_size == 26 and "1 batch of 26 an epoch, not of 128: so all 26 pictures" in setup.notes[-1]


def test_an_own_model_keeps_its_size_and_takes_the_classes(photographs: Path):
    model = ModelConfig(image_size=(24, 32), patch_size=(8, 8), width=16, depth=1, heads=2, mlp_width=16)
    setup = prepare(dataclasses.replace(run("digits"), name="mine", model=model, data=DataConfig(name=f"folder:{photographs}")), CPU)
    assert setup.config.model.image_size == (24, 32) and setup.config.model.classes == 3
    assert setup.data.train.preprocess.image_size == (24, 32)


@pytest.mark.parametrize("name", sorted(RUNS))
def test_every_preset_takes_a_step(name: str, trained: Run, tmp_path: Path):
    preset = RUNS[name]
    data = dataclasses.replace(preset.data, name="digits", subset=40.0)
    train = dataclasses.replace(preset.train, epochs=1.0, batch_size=20, threads=1, device="cpu", test=False)
    # The recipe as it is, on a model of the same make but one block deep: this is about settings, not about size.
    model = dataclasses.replace(preset.model, depth=1, width=32, heads=4, mlp_width=32) if preset.model.family == "vit" else preset.model
    model = dataclasses.replace(model, image_size=(8, 8), patch_size=(4, 4)) if preset.model.family == "vit" else model
    config = dataclasses.replace(preset, model=model, data=data, train=train, weights=str(trained.path) if preset.weights else None)
    result = fit(config, out=tmp_path / "run", quiet=True)
    assert result.metrics[-1]["step"] == 2 and np.isfinite(result.metrics[-1]["loss"])


def test_fine_tuning_keeps_the_weights_normalisation_unless_it_is_set_by_hand(trained: Run):
    config = dataclasses.replace(run("digits"), weights=str(trained.path))
    own = trained.model.origin
    assert prepare(config, CPU).preprocess.mean == own.mean.value
    setup = prepare(dataclasses.replace(config, data=dataclasses.replace(config.data, mean=(0.3,))), CPU)
    assert setup.preprocess.mean == setup.data.mean == setup.model.origin.mean.value == (0.3,)
    assert setup.preprocess.std == own.std.value


def test_weights_for_colour_learn_from_images_of_five_channels(trained: Run, tmp_path: Path):
    rng = np.random.default_rng(0)
    for name in ("dry", "wet"):
        (tmp_path / "bands" / name).mkdir(parents=True)
        for number in range(4):
            np.save(tmp_path / "bands" / name / f"{number}.npy", rng.integers(0, 255, (8, 8, 5), dtype=np.uint8))
    asked = parse(["finetune", "--data", f"folder:{tmp_path / 'bands'}", "--from", str(trained.path)])[0]
    setup = prepare(asked, CPU)
    assert setup.model.config.channels == len(setup.preprocess.mean) == 5
    assert any("channels adapted" in change for change in setup.model.origin.changes)


def test_a_head_of_as_many_other_classes_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ten words are not ten digits: the head is new, as is said; asked for by name, it stays."""
    monkeypatch.setattr("vitral.run.resolve.FEW_IMAGES", 0)
    first = lambda model: next(model.head.parameters())  # noqa: E731
    weights = create("ti/16", depth=1, classes=10, channels=1, image_size=8, patch_size=4)
    names = fact(tuple(f"word {number}" for number in range(10)))
    weights.origin = dataclasses.replace(weights.origin, classes=names, source=fact("trained as words"))
    config = dataclasses.replace(run("digits"), weights=str(save(weights, tmp_path / "words")))
    setup = prepare(config, torch.device("cpu"))
    assert any("the head starts new" in note for note in setup.notes)
    assert not torch.equal(first(setup.model), first(weights)) and setup.model.origin.classes.value == tuple("0123456789")
    assert torch.equal(setup.model.blocks[0].mlp.expand.weight, weights.blocks[0].mlp.expand.weight)
    kept = prepare(change(config, head_start="as-is"), torch.device("cpu"))
    assert torch.equal(first(kept.model), first(weights))


def test_what_is_assumed_of_weights_is_one_short_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    torch.manual_seed(0)
    model = create("ti/16", depth=1, image_size=32)  # of width 192, whose heads follow from a rule
    save_file(model.state_dict(), tmp_path / "bare.safetensors")
    setup = prepare(run("digits", device="cpu", weights=str(tmp_path / "bare.safetensors")), CPU)
    (note,) = [note for note in setup.notes if "assumed" in note]
    assert note.startswith("assumed of the weights: mean, std") and "0.5" not in note and capsys.readouterr().err == ""


def test_a_size_that_weights_cannot_take_is_refused_when_it_was_asked_for(tmp_path: Path):
    torch.manual_seed(0)
    weights = str(save(create("tiny", image_size=32, patch_size=16), tmp_path / "weights"))
    assert prepare(parse(["digits", "--from", weights])[0], CPU).config.model.image_size == (32, 32)
    assert prepare(parse(["digits", "--from", weights, "--image-size", "64"])[0], CPU).config.model.image_size == (64, 64)
    for size, words in (("100", "image 100×100 is not divisible by patch 16: use image size 96 or 112"), ("16", "use a larger image size")):
        with pytest.raises(ConfigError, match=words):
            prepare(parse(["digits", "--from", weights, "--image-size", size])[0], CPU)


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not WEIGHTS.exists() or not FLOWERS.exists():
        pytest.skip("needs ViT-Ti weights and the Flowers pictures")
    folder = tmp_path_factory.mktemp("flowers")
    wanted: dict[tuple[str, str], int] = {}
    with tarfile.open(FLOWERS) as archive:
        for member in archive:
            parts = Path(member.name).parts
            if not member.isfile() or parts[1] not in ("train", "test"):
                continue
            key = (parts[1], parts[2])
            if (parts[1], parts[2]) not in wanted and sum(split == parts[1] for split, _ in wanted) >= CLASSES:
                continue
            limit = TRAINING if parts[1] == "train" else TESTING
            if wanted.setdefault(key, 0) < limit:
                wanted[key] += 1
                source = archive.extractfile(member)
                assert source is not None
                target = folder / parts[2] / f"{parts[1]}-{parts[-1]}"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read())
    return folder


@pytest.mark.slow
def test_fine_tuning_rises_well_above_a_random_start(flowers: Path, tmp_path: Path):
    data = DataConfig(name=f"folder:{flowers}", augment="light", validation=0.15)
    base = run("finetune", epochs=3.0, batch_size=16, device="cpu", threads=1, evaluate_every=3.0)
    model = dataclasses.replace(base.model, image_size=(96, 96))
    tuned = fit(dataclasses.replace(base, data=data, model=model, weights=str(WEIGHTS)), out=tmp_path / "tuned", quiet=True)
    assert tuned.model.config.image_size == (96, 96) and tuned.model.origin.mean.value == (0.5, 0.5, 0.5)
    scratch = fit(dataclasses.replace(base, name="scratch", data=data, model=model, weights=None), out=tmp_path / "scratch", quiet=True)
    chance = 1 / len(tuned.model.origin.classes.value)
    assert tuned.test["accuracy"] > 0.7 > 2 * chance
    assert tuned.test["accuracy"] > scratch.test["accuracy"] + 0.2


def test_a_tiny_model_has_one_thread_and_a_larger_one_pytorchs_choice_unless_the_user_says():
    tiny, asked = run("digits", device="cpu"), run("digits", device="cpu", threads=3)
    one, three = prepare(tiny, CPU), prepare(asked, CPU)
    assert one.config.train.threads == 1 and three.config.train.threads == 3
    assert "on cpu (1 thread)" in headline(one, 1, 0) and "on cpu (3 threads)" in headline(three, 1, 0)
    assert prepare(run("digits", device="cpu", batch_size=512), CPU).config.train.threads is None


def test_what_snapshots_take_is_said_before_the_first_step():
    made = prepare(run("digits", device="cpu", snapshots=24), CPU)
    size = byte_size(24 * 4 * parameters(made.model)[0])
    assert f"24 snapshots ({size} on the disk)" in headline(made, 1, 0)


def test_threads_are_a_runs_own_and_written_down(tmp_path: Path):
    before = torch.get_num_threads()
    config = run("digits", epochs=0.1, device="cpu", threads=2, test=False)
    result = fit(dataclasses.replace(config, model=MODELS["digits"].opened()), out=tmp_path / "run", quiet=True)
    assert '"threads": 2' in (result.path / "env.json").read_text() and torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--set", "mixup=0.7", "cutmix=0.6"], "add up to 1"),
        (["--augment", "strong", "--set", "mixup=0.9"], "more than all batches"),
        (["--precision", "fp16"], "needs a CUDA GPU"),
        (["--from", "missing.safetensors"], "does not exist"),
        (["--from", "timm:vit_tinny_patch16_224"], "unknown timm model"),
        (["--teacher", "torchvision:vit_b_17"], "unknown torchvision model"),
        (["--stage", "confirm", "--data", "folder:photos"], "no sealed pictures"),
        (["--tune", "lora"], "freeze random numbers"),
    ],
)
def test_settings_are_checked_before_data_is_read(flags: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitral.train.prepare.open_source", lambda *_, **__: pytest.fail("nothing is read before settings are checked"))
    with pytest.raises(VitralError, match=said):
        prepare(parse(["cifar10", *flags])[0], CPU)
