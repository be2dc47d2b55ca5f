"""The whole set of figures, from small models of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vitral
from vitral.base.errors import UnknownNameError
from vitral.look.figures import FIGURES, Subject, figure_set, photographs

WHOLE = {"filters", "positions", "positions-rows-columns", "positions-class-token", "distance", "entropy"}
EACH = {
    "patches", "prediction", "methods", "attention", "attention-matrix", "attention-matrix-normalised", "attention-patch",
    "rollout", "classes", "ablation", "shuffled", "norms", "colours",
}  # fmt: skip


class Shown(Subject):
    """Keeps its figures instead of writing them."""

    def add(self, stem: str, figure: Any, numbers: dict[str, Any], caption: str, facts: dict[str, Any] | None = None) -> None:
        self.about[stem] = SimpleNamespace(figure=figure, numbers=numbers, caption=caption)


def drawn(model: Any, picture: Any, *names: str, token: Any = None) -> dict[str, Any]:
    """Stem → figure, numbers and caption, of those of `names` that apply to the model."""
    opened = [vitral.open_picture(picture, model)]
    figures: dict[str, Any] = {}
    subjects = [Shown(model, opened, Path(), figures, name=name, token=token) for name in ("", "a-cat")]
    for name in names or FIGURES:
        if FIGURES[name].applies(model):
            FIGURES[name].make(subjects[FIGURES[name].of_picture])
    return figures


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "a cat.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 40, 3), dtype=np.uint8)).save(path)
    return path


def test_every_figure_with_its_numbers_and_provenance(make, picture, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("vitral.draw.provenance.DPI", 50)  # the same figures, drawn faster
    out = tmp_path / "out"
    written = figure_set(make(depth=2).float(), [picture], out, rival=vitral.create("cnn"), formats=("png",), quiet=True)
    assert {path.stem for path in written} == WHOLE | {f"a-cat-{name}" for name in EACH}
    for path in written:
        with Image.open(path) as image:
            assert min(image.size) > 50
        facts = json.loads(path.with_suffix(".json").read_text())
        assert len(facts["model"]["sha256"]) == 64 and facts["command"] and facts["versions"]["vitral"]
        with np.load(path.with_suffix(".npz")) as numbers:
            assert numbers.files
    about = json.loads((out / "a-cat-rollout.json").read_text())["picture"]
    assert about["source"] == "a cat.png" and len(about["sha256"]) == 64
    assert about["box"] == pytest.approx([8, 0, 32, 24], abs=0.5)
    with np.load(out / "a-cat-rollout.npz") as numbers:
        tape = vitral.watch(make(depth=2).float(), picture)
        np.testing.assert_allclose(numbers["mean_discard_0"], vitral.look.rollout(tape).grid, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        lambda make: make(depth=1, class_token=False, pool="mean", positions="rotary", channels=1).float(),
        lambda make: make(depth=1, classes=0).float(),
        lambda make: vitral.create("cnn", image_size=16),
    ],
    ids=["grey-rotary-mean", "no-head", "cnn"],
)
def test_what_does_not_apply_is_left_out(make, model, picture) -> None:
    built = model(make)
    expected = {"filters", "colours", "methods"}
    if built.config.family == "vit":
        expected |= EACH | {"distance", "entropy"}
        expected |= {"positions", "positions-rows-columns", "positions-class-token"} if built.config.positions == "learned" else set()
    expected |= {"prediction"}
    expected -= set() if built.config.classes else {"prediction", "classes", "ablation", "shuffled"}
    assert set(drawn(built, picture)) == expected


def test_only_some_and_the_rows_of_a_token(make, picture, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("vitral.draw.provenance.DPI", 50)
    model = make(depth=1, heads=2, width=16).float()
    few = figure_set(model, [picture, picture], tmp_path / "few", only=["distance"], formats=("png",), quiet=True)
    assert {path.stem for path in few} == {"distance", "entropy"}
    with np.load(tmp_path / "few/distance.npz") as numbers:
        assert len(numbers["each"]) == 2
    figure_set(model, [picture], tmp_path / "rows", only=["attention"], token=3, formats=("png",), quiet=True)
    tape = vitral.watch(model, picture)
    with np.load(tmp_path / "rows/a-cat-attention-patch.npz") as numbers:
        assert numbers["maps"].shape[:2] == (1, 2) and str(numbers["token"]) == "3"
        np.testing.assert_allclose(numbers["maps"][0, 1].ravel(), tape.attention(0)[0, 1, 3, tape.prefix :], rtol=1e-5)
    with pytest.raises(UnknownNameError, match="figure"):
        figure_set(model, [picture], tmp_path, only=["everything"], quiet=True)


def test_of_many_heads_the_rows_of_the_first_eight_are_shown(make, picture) -> None:
    model = make(depth=1, heads=12, width=24).float()
    patch = drawn(model, picture, "attention", token=3)["attention-patch"]
    assert [title for axes in patch.figure.axes if (title := axes.get_title())] == [f"head {head}" for head in range(8)]
    assert patch.numbers["maps"].shape[:2] == (1, 8) and "row 3 of the matrix" in patch.caption


def test_what_is_left_out_or_overlaps_is_said(make, picture, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("vitral.draw.provenance.DPI", 50)
    model = make(depth=1, class_token=False, pool="mean", positions="rotary", stride=(2, 2)).float()
    only = ("patches", "positions")
    figure_set(model, [picture], tmp_path, formats=("png",), only=only)
    assert "no figures of positions: with positions = rotary there are no vectors to compare" in capsys.readouterr().err
    told = json.loads((tmp_path / "a-cat-patches.json").read_text())
    assert told["caption"] == "a-cat in patches of 4 × 4, overlapping: one every 2 × 2"
    figure_set(model, [picture], tmp_path, formats=("png",), only=only, quiet=True)
    assert capsys.readouterr().err == ""


def test_photographs_exist() -> None:
    assert [path.name for path in photographs()] == ["china.jpg", "flower.jpg"]
    assert all(path.is_file() for path in photographs())


def test_no_pictures(make, tmp_path) -> None:
    with pytest.raises(vitral.VitralError, match="pictures"):
        figure_set(make(), [], tmp_path)


def test_an_unknown_class_is_told_before_anything_is_written(make, picture, tmp_path) -> None:
    with pytest.raises(vitral.VitralError, match="class 99"):
        figure_set(make(depth=2).float(), [picture], tmp_path / "out", target=99, quiet=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("depth", [2, 5])
def test_blocks_go_down_and_heads_across_in_every_figure(make, picture, depth) -> None:
    model = make(depth=depth).float()
    assert depth != model.config.heads
    shown = drawn(model, picture, "attention", "ablation")
    for name in ("attention", "ablation"):
        axes = shown[name].figure.axes[0]
        assert (axes.get_ylabel(), axes.get_xlabel()) == ("block", "head")
        assert [label.get_text() for label in axes.get_yticklabels()] == [str(block) for block in range(depth)]
    first = shown["attention-patch"].figure.axes[0]
    assert (first.get_ylabel(), first.get_title()) == ("block 0", "head 0")
    assert shown["attention-patch"].figure.get_supxlabel().endswith("white frame: the patch that the map starts from")
