from __future__ import annotations

import copy
import json

from vitral.base.origin import IMAGENET_MEAN, Change, Origin, assumed, fact


def test_round_trip_through_json() -> None:
    origin = Origin(
        source=fact("timm:vit_tiny", "by the user"),
        mean=assumed(IMAGENET_MEAN, "as DeiT"),
        classes=fact(("cat", "dog")),
        parity={"blocks.0": 1e-7},
        changes=("head replaced",),
    )
    assert Origin.from_dict(json.loads(json.dumps(origin.to_dict()))) == origin


def test_assumptions_name_what_is_not_fact() -> None:
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


def test_a_new_part_remembers_whether_it_has_been_trained() -> None:
    origin = Origin().with_change("channels adapted: 3 → 1").with_change("head replaced: 7 → 3 classes", seed=4)
    trained = origin.trained()
    assert origin.changes == ("channels adapted: 3 → 1", "head replaced: 7 → 3 classes, untrained (seed 4)")
    assert trained.changes[-1] == "head replaced: 7 → 3 classes, new when this training began (seed 4)"
    for each in (origin, trained):
        stored = json.loads(json.dumps(each.to_dict()))
        assert stored["changes"][0] == "channels adapted: 3 → 1" and stored["changes"][1]["trained"] == each.changes[1].trained
        assert Origin.from_dict(stored) == each and copy.deepcopy(each) == each
        plain = Origin.from_dict(stored | {"changes": list(map(str, each.changes))})  # as files had it at first
        assert plain == each and [vars(change) for change in plain.changes] == [vars(change) for change in each.changes]
    assert copy.deepcopy(origin.changes[1]).trained is False and Change("a").seed is None


def test_marks() -> None:
    assert fact(1).mark == "declared"
    assert assumed(1).mark == "assumed"
