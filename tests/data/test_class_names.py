"""Whose class is whose."""

from __future__ import annotations

import pytest

from vitral.base.errors import UsageError
from vitral.data.class_names import find_classes, match_classes

OURS = ("Maine Coon", "tench, Tinca tinca", "crane", "crane", "owl")


def match(*theirs: str, ours: tuple[str, ...] = OURS) -> list[int]:
    return match_classes("the model", ours, len(ours) or 3, "photos", theirs).tolist()


def test_names_are_matched_as_people_write_them() -> None:
    assert match("owl", "maine_coon") == [4, 0]
    assert match("tinca-tinca") == [1] and match("tench, Tinca tinca") == [1]


def test_numbers_are_taken_as_class_numbers_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert match("003", "000") == [3, 0]
    assert "counted from 0 (003 is crane)" in capsys.readouterr().err
    assert match("00", "01", "02", "03", "04") == [0, 1, 2, 3, 4] and not capsys.readouterr().err, "all of them: nothing else can be meant"
    with pytest.raises(UsageError, match="1, 2, 3"):
        match("1", "2", "3", "4", "5")
    with pytest.raises(UsageError, match="1, 01"):
        match("1", "01")
    with pytest.raises(UsageError, match="001, 002"):
        match("1", "2", ours=("001", "002"))
    assert match("002", ours=("001", "002")) == [1], "a name like any other"


def test_some_numbers_are_no_names() -> None:
    assert find_classes("the teacher", OURS, len(OURS), "photos", ["001", "002"]) == [None, None]
    assert find_classes("the teacher", OURS, len(OURS), "photos", ["4", "3", "2", "1", "0"]) == [4, 3, 2, 1, 0]


def test_what_is_not_one_class_is_refused() -> None:
    with pytest.raises(UsageError, match="crane"):
        match("crane")
    with pytest.raises(UsageError, match=r"owls.*owl\?"):
        match("owls")
    with pytest.raises(UsageError, match="two classes"):
        match("tench", "tinca tinca")


def test_a_model_without_names_goes_by_order_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert match("a", "b", "c", ours=()) == [0, 1, 2]
    assert "taken in their order" in capsys.readouterr().err
    assert match("08", "09", "10", ours=()) == [0, 1, 2]
    with pytest.raises(UsageError, match="10, 8, 9"):
        match("10", "8", "9", ours=())
    with pytest.raises(UsageError, match="3 classes"):
        match("a", "b", ours=())


def test_imagenet_by_its_folders() -> None:
    names = tuple(f"animal {number}" for number in range(1000))
    folders = [f"n{number:08d}" for number in range(0, 2000, 2)]
    assert match(*folders, ours=names) == list(range(1000))
    pytest.importorskip("timm")
    assert match("n01443537", "n01440764", ours=names) == [1, 0]
    with pytest.raises(UsageError, match="n99999999"):
        match("n99999999", ours=names)
