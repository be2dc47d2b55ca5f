from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.picture import Box
from vitral.draw.heatmap import Heatmap
from vitral.draw.scale import Scale


@pytest.mark.parametrize(
    ("facts", "title"),
    [
        ({"method": "rollout"}, "rollout"),
        ({"method": "class_attention", "block": 3, "head": 0}, "class attention, block 3, head 0"),
        ({"method": "attention", "block": 0, "head": "mean"}, "attention, block 0, mean of heads"),
        ({"method": "relevance", "target": "church"}, "relevance → church"),
        ({"method": "relevance", "target": 497}, "relevance → class 497"),
    ],
)
def test_titles(facts: dict, title: str) -> None:
    assert Heatmap(np.eye(2), **facts).title == title
    assert repr(Heatmap(np.ones((2, 3)), **facts)) == f"Heatmap({title}, 2×3)"


@pytest.mark.parametrize("grid", [np.zeros(4), np.zeros((1, 2, 2)), np.zeros((0, 3)), np.array([[0.0, np.nan]])])
def test_grids_that_are_none(grid: np.ndarray) -> None:
    with pytest.raises(UsageError):
        Heatmap(grid, "rollout")


def test_peak_and_limits() -> None:
    grid = np.array([[0.0, 0.5, 0.1], [-0.9, 0.2, 0.3]])
    assert Heatmap(grid, "a").peak == (0, 1)
    assert Heatmap(grid, "a", signed=True).peak == (1, 0)
    assert Heatmap(grid, "a").limits == (-0.9, 0.5)
    assert Heatmap(grid, "a", signed=True).limits == (-0.9, 0.9)


def test_the_map_alone_shows_each_number() -> None:
    grid = np.array([[0.0, 1.0, 0.5]])
    pixels = np.asarray(Heatmap(grid, "a").image(size=9), dtype=int)
    assert pixels.shape == (3, 9, 3)
    tones = pixels[1, [1, 4, 7]].sum(axis=1)
    assert tones[0] < tones[2] < tones[1]
    shared = np.asarray(Heatmap(grid, "a").image(size=9, limits=(0, 10)), dtype=int)
    assert shared.sum() < pixels.sum(), "on a wider scale the same values are darker"


def test_overlay_uses_the_box(photograph: Image.Image) -> None:
    grid = np.zeros((4, 4))
    grid[3, 3] = 1
    box = Box(100, 0, 200, 100)
    heat = Heatmap(grid, "a", original=photograph.resize((640, 400)), box=box)
    marked = np.asarray(heat.overlay(), dtype=int)
    plain = np.asarray(Heatmap(np.zeros((4, 4)), "a", original=heat.original, box=box).overlay(), dtype=int)
    changed = np.argwhere(np.abs(marked - plain).sum(axis=2) > 60)
    assert changed[:, 0].min() >= 60
    assert changed[:, 0].max() < 100
    assert changed[:, 1].min() >= 160
    assert changed[:, 1].max() < 200
    assert (marked[150:] == plain[150:]).all()


def test_without_a_picture_the_overlay_is_the_map() -> None:
    heat = Heatmap(np.eye(4), "a")
    assert heat.overlay().tobytes() == heat.image().tobytes()
    assert Heatmap(np.eye(4), "a", original=Image.new("L", (400, 300))).overlay().size == (400, 300)


def test_it_shows_itself(whole: Callable, golden: Callable, photograph: Image.Image) -> None:
    heat = Heatmap(np.eye(4), "occlusion", target="church", original=photograph, note="a note", unit="share", signed=True)
    whole(figure := heat.figure())
    golden(figure, "heatmap")
    assert Image.open(io.BytesIO(heat._repr_png_())).format == "PNG"
    whole(Heatmap(np.eye(4), "attention", block=1, head=2).figure(mode="patches"))


@pytest.mark.parametrize(("name", "made"), [("a.svg", "a.svg"), ("b", "b.png"), ("block.3", "block.3.png")])
def test_saved_with_numbers_and_facts(tmp_path: Path, name: str, made: str) -> None:
    grid = np.random.default_rng(0).random((3, 4))
    heat = Heatmap(grid, "rollout", target="church", original=Image.new("L", (8, 8)), box=Box(0, 1, 8, 7))
    path = heat.save(tmp_path / name, {"command": "vitral look"})
    stem = made.rsplit(".", 1)[0]
    assert path == tmp_path / made
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([made, f"{stem}.json", f"{stem}.npz"])
    with np.load(tmp_path / f"{stem}.npz") as numbers:
        assert (numbers["grid"] == grid).all()
    record = json.loads((tmp_path / f"{stem}.json").read_text())
    assert record["command"] == "vitral look"
    assert record["target"] == "church"
    assert record["box"] == [0, 1, 8, 7]


def test_colours_can_be_chosen(photograph: Image.Image) -> None:
    heat = Heatmap(np.arange(16.0).reshape(4, 4), method="rollout", original=photograph)
    ours, other = np.asarray(heat.overlay()), np.asarray(heat.overlay(colours="magma"))
    assert ours.shape == other.shape and (ours != other).any()
    assert (np.asarray(heat.overlay(colours="magma", alpha=0)) == np.asarray(heat.overlay(alpha=0))).all()
    with pytest.raises(KeyError, match=r"'magna'.*magma"):
        heat.overlay(colours="magna")


@pytest.mark.parametrize("box", [None, Box(60, 0, 260, 200)])
def test_the_patch_that_looks_is_framed(photograph: Image.Image, box: Box | None) -> None:
    heat = Heatmap(np.zeros((4, 4)), "attention", original=photograph, box=box, start=(1, 2))
    framed = np.asarray(heat.overlay(size=320), dtype=int)
    plain = np.asarray(dataclasses.replace(heat, start=None).overlay(size=320), dtype=int)
    rows, columns = np.nonzero(np.abs(framed - plain).sum(axis=2))
    left, right = (160, 240) if box is None else (160, 210)
    assert (rows.min(), rows.max()) == (49, 100) and (columns.min(), columns.max()) == (left - 1, right)
    assert (framed[60:90, left + 10 : right - 10] == plain[60:90, left + 10 : right - 10]).all(), "a frame, not a square"
    alone = Heatmap(np.zeros((4, 4)), "attention", start=(1, 2))
    assert alone.overlay().getpixel((128, 64)) == (255, 255, 255), "also on a map without its picture"


def test_the_scale_is_that_of_the_overlay(photograph: Image.Image) -> None:
    grid = np.array([[0.0, 4.0]])
    over = Heatmap(grid, "rollout", original=photograph, unit="share")
    assert over.scale(0.5, limits=(0, 2), colours="magma") == Scale((0, 2), "share", alpha=0.5, colours="magma")
    assert Heatmap(grid, "rollout", signed=True).scale() == Scale((-4.0, 4.0), signed=True), "a map alone shows the colours themselves"
