from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.picture import Box
from vitral.draw.overlay import _DIM, _MODES, enlarge, lay_over, to_rgb

BLACK = Image.new("RGB", (320, 200))


def brightest(image: Image.Image) -> tuple[float, float]:
    """Centre (x, y) of the brightest pixels, the frame's pure white left out."""
    values = np.asarray(image, dtype=int).sum(axis=2)
    values[values == 3 * 255] = 0
    rows, columns = np.nonzero(values >= values.max() - 2)
    return float(columns.mean()) + 0.5, float(rows.mean()) + 0.5


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    row=st.integers(0, 6),
    column=st.integers(0, 9),
    left=st.floats(0, 100),
    top=st.floats(0, 60),
    width=st.floats(120, 220),
    height=st.floats(80, 140),
    mode=st.sampled_from(sorted(_MODES)),
)
def test_a_hot_patch_lands_where_it_belongs(row: int, column: int, left: float, top: float, width: float, height: float, mode: str) -> None:
    grid = np.zeros((7, 10))
    grid[row, column] = 1
    box = Box(left, top, left + width, top + height)
    x, y = brightest(lay_over(BLACK, grid, box, mode=mode))
    # The patch, in the original: the crop and the resize are undone by the box's own arithmetic.
    from_x, from_y = box.to_original(column, row, grid.shape)
    to_x, to_y = box.to_original(column + 1, row + 1, grid.shape)
    scale = 256 / 200 if min(BLACK.size) >= 256 else enlarge(BLACK).width / BLACK.width
    assert from_x - 1 <= x / scale <= to_x + 1
    assert from_y - 1 <= y / scale <= to_y + 1


def test_outside_the_box_only_the_brightness_changes(photograph: Image.Image) -> None:
    original = photograph.resize((640, 400))
    box = Box(120, 0, 520, 400)
    result = np.asarray(lay_over(original, np.random.default_rng(0).random((14, 14)), box), dtype=float)
    before = np.asarray(original, dtype=float)
    outside = np.ones((400, 640), dtype=bool)
    outside[:, 120:520] = False
    assert np.abs(result[outside] - before[outside] * _DIM).max() <= 0.51
    assert np.abs(result[~outside] - before[~outside] * _DIM).mean() > 10


def test_alpha_zero_shows_the_picture_and_all_of_it_without_a_box(photograph: Image.Image) -> None:
    original = photograph.convert("L").resize((640, 400))
    clear = np.asarray(lay_over(original, np.eye(4), alpha=0), dtype=int)
    assert np.abs(clear - np.asarray(original.convert("RGB"), dtype=int)).max() <= 1


def hues(pixels: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(pixels.astype(np.uint8)).convert("HSV"), dtype=int)[..., 0] * 360 / 255


@pytest.mark.parametrize("signed", [False, True])
def test_a_photograph_keeps_its_colours(signed: bool) -> None:
    """Where a map is at zero the hues are exactly the photograph's, at a quarter of its height they are still close to them."""
    bright = Image.fromarray((np.random.default_rng(0).integers(0, 6, (300, 300, 3)) // 5 * 200 + 40).astype(np.uint8))
    before = np.asarray(bright)
    coloured = before.max(axis=2) > before.min(axis=2)
    grid = np.array([[0.0, 0.25, 1.0]])
    after = np.asarray(lay_over(bright, grid, mode="patches", signed=signed))
    for place, most in ((slice(5, 95), 2), (slice(105, 195), 40)):
        there = coloured[:, place]
        turned = np.abs(hues(after[:, place])[there] - hues(before[:, place])[there])
        assert np.percentile(np.minimum(turned, 360 - turned), 50) <= most
    assert after[:, 5:95].mean() < before[:, 5:95].mean() * 0.8, "and lies in the shade"


def test_more_is_told_from_less_on_any_ground() -> None:
    """Strong and weak differ by brightness too, so that neither a ground in the colour of the heat nor colour blindness hides them."""
    for colour in ((255, 160, 30), (30, 60, 200), (20, 20, 20), (120, 120, 120)):
        ground = Image.new("RGB", (300, 300), colour)
        image = np.asarray(lay_over(ground, np.array([[0.0, 0.5, 1.0]]), mode="patches"), dtype=float) @ [0.2126, 0.7152, 0.0722]
        weak, middle, strong = image[150, [50, 150, 250]]
        assert strong - weak > 60 and strong > middle > weak * 0.9


def test_patches_are_flat_and_have_edges() -> None:
    grid = np.array([[0.0, 1.0], [0.5, 0.25]])
    image = np.asarray(lay_over(Image.new("RGB", (400, 400)), grid, mode="patches"), dtype=int)
    for row in range(2):
        for column in range(2):
            inner = image[row * 200 + 5 : row * 200 + 195, column * 200 + 5 : column * 200 + 195].reshape(-1, 3)
            assert (inner == inner[0]).all()
    assert (image[200, 10] > image[190, 10]).all(), "a lighter line stands between the patches"
    assert (image[10, 200] != image[10, 210]).any()


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_smooth_maps_pass_through_the_patches_and_keep_their_range(mode: str) -> None:
    grid = np.random.default_rng(1).random((5, 8))
    weights = _MODES[mode]
    down, across = weights(np.arange(5) + 0.5, 5), weights(np.arange(8) + 0.5, 8)
    assert np.allclose(down @ grid @ across.T, grid)
    fine = weights(np.linspace(0, 5, 200), 5)
    assert np.allclose(fine.sum(axis=1), 1)
    assert np.allclose(fine @ np.full(5, 3.0), 3.0)


def test_a_fine_map_on_a_small_picture_is_averaged() -> None:
    # A chequerboard finer than the pixels must become grey, not pick every second patch.
    weights = _MODES["bilinear"]((np.arange(32) + 0.5) * 8, 256)
    stripes = np.arange(256) % 2
    assert np.allclose((weights @ stripes)[2:-2], 0.5, atol=0.05)


def test_signed_maps_are_quiet_at_zero_and_opposite_at_the_ends() -> None:
    grey = Image.new("RGB", (300, 300), (128, 128, 128))
    image = np.asarray(lay_over(grey, np.array([[-1.0, 0.0, 0.5]]), mode="patches", signed=True), dtype=int)
    negative, zero, positive = image[150, 50], image[150, 150], image[150, 250]
    assert negative[2] > negative[0]
    assert positive[0] > positive[2]
    assert abs(zero[0] - zero[2]) <= 4


@pytest.mark.parametrize("mode", _MODES)
def test_it_looks_as_it_did(golden: Callable, photograph: Image.Image, mode: str) -> None:
    grid = np.array([[0.0, 0.2, 0.1], [0.3, 1.0, 0.4]])
    golden(lay_over(photograph, grid, Box(60, 0, 260, 200), mode=mode, size=200), f"overlay_{mode}")


def test_sizes() -> None:
    assert lay_over(Image.new("L", (8, 8)), np.eye(4)).size == (256, 256)
    assert lay_over(Image.new("RGB", (300, 500)), np.eye(4)).size == (300, 500)
    assert lay_over(Image.new("RGB", (30, 60)), np.eye(4)).size == (270, 540)
    assert lay_over(Image.new("RGB", (300, 500)), np.eye(4), size=100).size == (60, 100)
    assert max(enlarge(Image.new("L", (1, 4000))).size) <= 8192


def test_tiny_originals_keep_their_pixels() -> None:
    digit = Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 8), dtype=np.uint8))
    shown = np.asarray(enlarge(digit))[..., 0]
    assert (shown == np.asarray(digit).repeat(32, 0).repeat(32, 1)).all()


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I", "F", "I;16"])
def test_every_kind_of_picture(mode: str) -> None:
    image = Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 900) if mode == "I;16" else Image.new(mode, (8, 8))
    assert to_rgb(image).mode == "RGB"
    if mode == "I;16":
        assert to_rgb(image).getextrema()[0] == (0, 255)
    if mode in ("RGBA", "LA"):
        assert to_rgb(image).getpixel((0, 0)) == (255, 255, 255), "transparent is white, not black"


def test_a_flat_map_and_a_box_beyond_the_picture() -> None:
    flat = np.asarray(lay_over(BLACK, np.full((3, 3), 0.2)))
    assert (flat == flat[0, 0]).all()
    assert lay_over(BLACK, np.eye(3), Box(-40, -40, 360, 240)).size == enlarge(BLACK).size
    assert lay_over(BLACK, np.eye(3), Box(1000, 1000, 1100, 1100)).size == enlarge(BLACK).size


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="'smooth'"):
        lay_over(BLACK, np.eye(2), mode="smooth")
    with pytest.raises(UsageError, match="alpha"):
        lay_over(BLACK, np.eye(2), alpha=2)
    with pytest.raises(UsageError, match="size = 0"):
        lay_over(BLACK, np.eye(2), size=0)
