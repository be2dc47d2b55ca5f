from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.picture import Box
from vitral.draw.scale import Scale
from vitral.draw.tiles import class_sheet, pair_sheet, patch_figure, picture_sheet

DIGIT = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 4)


def shown(figure) -> list[np.ndarray]:
    return [np.asarray(axes.images[0].get_array()) for axes in figure.axes if axes.images]


def test_pictures_captions_and_labels(whole: Callable, golden: Callable, photograph: Image.Image) -> None:
    captions = ["short", "a caption that is far too long to stand on a single line of its picture", "€ < &"]
    figure = picture_sheet([photograph, DIGIT, photograph], captions, columns=2, title="A title", row_labels=["first", "second"])
    whole(figure)
    golden(figure, "picture_sheet")
    titles = [axes.get_title() for axes in figure.axes if axes.get_visible()]
    assert titles[0] == "short"
    assert titles[1].count("\n") == 2
    assert titles[1].endswith("…")
    assert [axes.get_ylabel() for axes in figure.axes] == ["first", "", "second", ""]
    assert len(shown(figure)) == 3


def test_large_pictures_are_made_small_but_keep_their_shape() -> None:
    figure = picture_sheet([Image.new("RGB", (4000, 2000))])
    assert shown(figure)[0].shape == (240, 480, 3)


def test_class_sheet(whole: Callable, golden: Callable, photograph: Image.Image) -> None:
    figure = class_sheet({"zero": [DIGIT] * 3, "a class with a very long name": [photograph], "none": []}, title="Classes")
    whole(figure)
    golden(figure, "class_sheet")
    assert len(shown(figure)) == 4
    assert [label for axes in figure.axes if (label := axes.get_ylabel())] == ["zero", "a class with a ve…", "none"]
    assert shown(figure)[3].shape[0] == shown(figure)[3].shape[1], "cut square"


def test_patches_are_the_picture_cut_at_the_box(golden: Callable) -> None:
    figure = patch_figure(DIGIT, (4, 2), Box(0, 0, 8, 4), gap=0.875)
    golden(figure, "patch_figure")
    seen, cut = shown(figure)
    side = 64
    assert seen.shape == (4 * side, 2 * side, 3)
    assert (seen[:, :, 0] == np.asarray(DIGIT)[:4].repeat(64, axis=0).repeat(16, axis=1)).all()
    gap = (cut.shape[0] - 4 * side) // 3
    for row in range(4):
        for column in range(2):
            top, left = row * (side + gap), column * (side + gap)
            patch = seen[row * side : (row + 1) * side, column * side : (column + 1) * side]
            assert (cut[top : top + side, left : left + side] == patch).all()
    assert (cut[side : side + gap] == 255).all()
    assert figure.axes[1].get_title() == "4 × 2 = 8 patches"


def test_wrong_use() -> None:
    for call in (lambda: picture_sheet([]), lambda: class_sheet({"a": []})):
        with pytest.raises(UsageError):
            call()


def test_a_scale_stands_beside_its_pictures_once_in_a_row(whole: Callable, photograph: Image.Image) -> None:
    one, other = Scale((0.0, 1.0)), Scale((0.0, 2.0), "share", cut=True)
    figure = picture_sheet([photograph] * 6, columns=3, scales=[None, one, one, one, other, other], note="a note")
    whole(figure)
    assert [len(axes.child_axes) for axes in figure.axes] == [0, 0, 1, 1, 0, 1]
    assert figure.get_supxlabel() == "a note"
    words = "attention: first picture, last block · lens: pictures down, blocks across · filters: zero is grey"
    long = picture_sheet([photograph] * 3, columns=3, width=1.15, note=words)
    whole(long)
    assert long.get_supxlabel().count("\n") and long.get_supxlabel().replace("\n", " ") == words


def test_each_pair_stands_beside_each_other() -> None:
    pairs = [(Image.new("RGB", (30, 20), (20 * k, 0, 0)), Image.new("RGB", (30, 20), (0, 20 * k, 0))) for k in range(3)]
    captions = [(f"left {k}", f"right {k}") for k in range(3)]
    figure = pair_sheet(pairs, captions, title="alike")
    shown = [one for one in figure.axes if one.get_visible()]
    assert [one.get_title() for one in shown] == [word for caption in captions for word in caption]
    tops = [round(one.get_position().y0, 3) for one in shown]
    assert tops[0] == tops[1] and tops[2] == tops[3] and tops[4] == tops[5], "a pair is never torn apart"
    with pytest.raises(UsageError, match="1 pairs and 0 captions"):
        pair_sheet(pairs[:1], [])
