from __future__ import annotations

import json

from vitral.base.origin import IMAGENET_MEAN, Origin, assumed, fact


def test_round_trip_through_json() -> None:
    origin = Origin(
        source=fact("timm:vit_tiny", "by the user"),
        mean=assumed(IMAGENET_MEAN, "as DeiT"),
        classes=fact(("cat", "dog")),
        parity={"blocks.0": 1e-7},
        changes=("head replaced",),
    )
    assert Origin.from_dict(json.loads(json.dumps(origin.to_dict()))) == origin


def test_assumptions_name_what_is_not_known() -> None:
    origin = Origin(mean=assumed((0.5,), "family"), std=fact((0.5,)), crop=fact(0.9))
    lines = origin.assumptions()
    assert "mean = (0.5,) (assumed: family)" in lines
    assert not any(line.startswith(("std", "crop", "source", "parity")) for line in lines)
    assert "classes = unnamed (assumed)" in lines


def test_class_names() -> None:
    origin = Origin(classes=fact(("cat", "dog")))
    assert [origin.class_name(index) for index in (0, 1, 2, -1)] == ["cat", "dog", "class 2", "class -1"]


def test_a_change_is_added_not_put_in_place() -> None:
    origin = Origin()
    assert origin.with_change("a").with_change("b").changes == ("a", "b")
    assert origin.changes == ()


def test_marks() -> None:
    assert fact(1).mark == "declared"
    assert assumed(1).mark == "assumed"
