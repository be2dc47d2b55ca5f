"""The one door: folders, files, names; what the caller may set, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitral
from vitral.base.errors import UsageError, WeightsError
from vitral.base.origin import IMAGENET_MEAN, IMAGENET_STD, fact
from vitral.build import create
from vitral.data.images.preprocess import Preprocess
from vitral.weights.checkpoint import save
from vitral.weights.export import export
from vitral.weights.load import load


@pytest.fixture
def model():
    torch.manual_seed(0)
    return create("tiny").eval()


@pytest.fixture
def file(model, tmp_path):
    path = export(model, tmp_path / "timm", "timm")
    (path.parent / "config.json").unlink()
    return path


def test_a_saved_folder_and_the_file_in_it(model, tmp_path, capsys) -> None:
    save(model, tmp_path / "run")
    images = torch.randn(2, 3, 32, 32)
    for place in (tmp_path / "run", str(tmp_path / "run"), tmp_path / "run" / "model.safetensors"):
        assert torch.equal(load(place)(images), model(images))
    assert vitral.load(tmp_path / "run").config == model.config
    assert capsys.readouterr().err == ""  # nothing is assumed about our own


def test_our_own_tensors_without_their_config(model, tmp_path) -> None:
    save_file(model.state_dict(), tmp_path / "bare.safetensors")
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(load(tmp_path / "bare.safetensors", heads=3)(images), model(images))
    fixed = create("tiny", positions="sincos")
    save_file(fixed.state_dict(), tmp_path / "fixed.safetensors")
    with pytest.raises(WeightsError, match="learned"):
        load(tmp_path / "fixed.safetensors", heads=3)


def test_what_a_file_cannot_say_is_assumed_printed_and_can_be_set(file, capsys) -> None:
    with pytest.raises(UsageError, match="heads"):
        load(file)  # width 48 follows no rule
    told = load(file, heads=3)
    said = capsys.readouterr().err
    assert "assumed: mean = (0.5, 0.5, 0.5)" in said and "activation = gelu" in said and "heads = 3" not in said
    assert told.origin.heads.declared and not told.origin.activation.declared
    other = load(file, heads=3, activation="quick_gelu", preprocess="imagenet")
    assert other.config.activation == "quick_gelu" and other.origin.activation.declared
    assert other.origin.mean.declared and other.origin.mean.value == (0.485, 0.456, 0.406)
    images = torch.randn(1, 3, 32, 32)
    assert not torch.allclose(other(images), told(images))
    assert not torch.allclose(load(file, heads=4)(images), told(images))


def test_preprocessing_is_set_by_name_or_by_field(file) -> None:
    origin = load(file, heads=3, preprocess={"mean": 0.4, "resize": "squash"}).origin
    assert origin.mean.value == (0.4, 0.4, 0.4) and origin.mean.declared and origin.resize.value == "squash" and not origin.std.declared
    for wrong in ("imagenett", {"means": 1}, {"resize": "stretch"}, {"std": 0}, {"crop": 2}):
        with pytest.raises(UsageError):
            load(file, heads=3, preprocess=wrong)


def test_another_size_is_made_and_stated(file) -> None:
    model = load(file, heads=3, classes=4, image_size=(48, 32), channels=1, patch_size=8)
    assert model(torch.zeros(1, 1, 48, 32)).shape == (1, 4)
    told = " ".join(model.origin.changes)
    for words in ("positions resized: 8×8 → 6×4", "resampled: 4×4 → 8×8", "channels adapted: 3 → 1", "head replaced: 10 → 4"):
        assert words in told
    assert len(model.origin.mean.value) == 1
    again = load(file, heads=3, classes=4, image_size=(48, 32), channels=1, patch_size=8)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True))


@pytest.mark.parametrize("channels", [1, 2, 4, 5])
def test_every_road_to_other_channels_ends_at_the_same_normalisation(file, tmp_path, channels) -> None:
    """Weights adapted to them, weights that have them already, the caller's own word, and the preprocessing of data without a model."""
    usual = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
    asked = Preprocess((32, 32), channels, **usual, crop=0.9)
    assert asked.mean == pytest.approx((sum(IMAGENET_MEAN) / 3,) * channels) and asked.std == pytest.approx(
        (sum(IMAGENET_STD) / 3,) * channels
    )
    named = file.rename(file.with_name("deit.safetensors"))  # a name that stands for ImageNet's mean and deviation
    assert Preprocess.of(load(named, heads=3, channels=channels)) == asked
    assert Preprocess.of(load(named, heads=3, channels=channels, preprocess={"crop": 0.9, **usual})) == asked
    other = export(create("tiny", channels=channels), tmp_path / "other", "timm")
    (other.parent / "config.json").unlink()
    assert Preprocess.of(load(other.rename(other.with_name("deit.safetensors")), heads=3)) == asked


def test_a_non_square_file_needs_its_size_and_keeps_it(tmp_path) -> None:
    wide = create("tiny", image_size=(32, 48)).eval()
    path = export(wide, tmp_path, "npz")
    with pytest.raises(WeightsError, match="square"):
        load(path)
    images = torch.randn(1, 3, 32, 48)
    assert torch.equal(load(path, image_size=(32, 48))(images), wide(images))
    wide.origin = dataclasses.replace(wide.origin, resize=fact("squash"))
    folder = export(wide, tmp_path / "hf", "hf")
    back = load(folder, image_size=(64, 64))  # the folder knows its own size, so the wish is a resize
    assert back.config.image_size == (64, 64) and "positions resized: 8×12 → 16×16" in " ".join(back.origin.changes)


def test_contradictions_and_unknown_places(model, tmp_path) -> None:
    save(model, tmp_path / "run")
    with pytest.raises(UsageError, match="heads = 4"):
        load(tmp_path / "run", heads=4)
    with pytest.raises(WeightsError, match=r"timm:NAME"):
        load("nowhere.safetensors")
    with pytest.raises(UsageError, match=r"vitral\.adopt"):
        load(model)  # type: ignore[arg-type]
    (tmp_path / "empty").mkdir()
    with pytest.raises(WeightsError, match="holds no"):
        load(tmp_path / "empty")


def test_a_folder_with_damaged_settings_is_one_line(model, tmp_path) -> None:
    folder = export(model, tmp_path / "hf", "hf")
    for content in ('{"hidden_act": "swish", "num_attention_heads": 3}', '{"num_attention_heads": "many"}', "[1]", "{"):
        (folder / "config.json").write_text(content)
        with pytest.raises(vitral.VitralError) as caught:
            load(folder)
        assert "\n" not in str(caught.value)
    described = '{"num_attention_heads": 3, "id2label": {"x": "a"}, "hidden_act": "gelu"}'
    (folder / "config.json").write_text(described)
    with pytest.raises(WeightsError, match="settings"):
        load(folder)


def test_shards_are_joined(model, tmp_path) -> None:
    folder = export(model, tmp_path / "hf", "hf")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    pieces = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for piece, keys in pieces.items():
        save_file({key: tensors[key] for key in keys}, folder / piece)
    index = {"weight_map": {key: piece for piece, keys in pieces.items() for key in keys}}
    import json

    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(load(folder)(images), model(images))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "../elsewhere.safetensors"}}))
    with pytest.raises(WeightsError, match="outside"):
        load(folder)


def test_a_hostile_config_beside_our_own_weights_is_one_line(model, tmp_path) -> None:
    import json

    folder = save(model, tmp_path / "run")
    described = json.loads((folder / "config.json").read_text())
    for change in ({"depth": 10**9}, {"width": 7}, {"heads": 0}, {"depth": "2"}, {"unknown": 1}):
        (folder / "config.json").write_text(json.dumps({**described, "model": {**described["model"], **change}}))
        with pytest.raises(vitral.VitralError) as caught:
            load(folder)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["file", "folder"])
def test_a_nan_is_refused_by_the_name_of_its_parameter(model, file, tmp_path, place) -> None:
    with torch.no_grad():
        model.blocks[1].attention.qkv.weight[0, 0] = float("nan")
    where = file if place == "file" else save(model, tmp_path / "run")
    if place == "file":
        tensors = load_file(file)
        tensors["blocks.1.attn.qkv.weight"][0, 0] = float("nan")
        save_file(tensors, file)
    with pytest.raises(WeightsError, match=r"blocks\.1\.attention\.qkv\.weight"):
        load(where, heads=3)


@pytest.mark.parametrize("given", [None, 3, {}])
def test_what_is_no_place_is_refused(given) -> None:
    with pytest.raises(UsageError, match=type(given).__name__):
        load(given)


@pytest.mark.parametrize("place", ["runs/demo", Path("runs/demo")])
def test_a_place_is_not_yet_a_model(place) -> None:
    calls = (
        vitral.predict,
        vitral.watch,
        vitral.evaluate,
        lambda model, x: vitral.open_picture(x, model),
        lambda model, x: vitral.transform(model),
    )
    for call in calls:
        with pytest.raises(UsageError, match=r"vitral\.load"):
            call(place, "cat.jpg")
