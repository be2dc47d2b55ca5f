"""Whose class is whose."""

from __future__ import annotations

import pytest

from vitral.base.errors import UsageError
from vitral.data.class_names import match_classes

OURS = ("Maine Coon", "tench, Tinca tinca", "crane", "crane", "owl")


def match(*theirs: str, ours: tuple[str, ...] = OURS) -> list[int]:
    return match_classes("the model", ours, len(ours) or 3, "photos", theirs).tolist()


def test_names_are_matched_as_people_write_them() -> None:
    assert match("owl", "maine_coon") == [4, 0]
    assert match("tinca-tinca") == [1] and match("tench, Tinca tinca") == [1]
    assert match("3", "0") == [3, 0], "numbered folders"


def test_what_is_not_one_class_is_refused() -> None:
    with pytest.raises(UsageError, match="does not know: crane"):
        match("crane")
    with pytest.raises(UsageError, match=r"does not know: owls: did you mean owl\?"):
        match("owls")
    with pytest.raises(UsageError, match="two classes of photos"):
        match("tench", "tinca tinca")


def test_a_model_without_names_goes_by_order_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert match("a", "b", "c", ours=()) == [0, 1, 2]
    assert "taken in their order" in capsys.readouterr().err
    with pytest.raises(UsageError, match="the model has 3 classes, photos has 2"):
        match("a", "b", ours=())


def test_imagenet_by_its_folders() -> None:
    names = tuple(f"animal {number}" for number in range(1000))
    folders = [f"n{number:08d}" for number in range(0, 2000, 2)]
    assert match(*folders, ours=names) == list(range(1000))
    pytest.importorskip("timm")
    assert match("n01443537", "n01440764", ours=names) == [1, 0]
    with pytest.raises(UsageError, match="does not know: n99999999"):
        match("n99999999", ours=names)
