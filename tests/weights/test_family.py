"""The user's word on preprocessing."""

from __future__ import annotations

import pytest

from vitral.base.errors import UsageError
from vitral.data.images.preprocess import Preprocess
from vitral.weights.detect import FAMILIES
from vitral.weights.family import PREPROCESS, preprocess_fields


def test_a_name_or_fields() -> None:
    assert preprocess_fields(None) == {} and preprocess_fields("clip") == PREPROCESS["clip"]
    assert preprocess_fields({"mean": 0.4, "std": [1, 2, 3]}) == {"mean": (0.4,) * 3, "std": (1.0, 2.0, 3.0)}
    for wrong in ("imagenett", {"means": 1}, {"resize": "stretch"}, {"std": 0}, {"crop": 0}, {"crop": 1.1}):
        with pytest.raises(UsageError):
            preprocess_fields(wrong)


@pytest.mark.parametrize("name", PREPROCESS)
def test_every_convention_is_one_that_pictures_can_be_prepared_by(name) -> None:
    assert Preprocess((32, 32), 3, **PREPROCESS[name]).mean == PREPROCESS[name]["mean"]


def test_every_family_has_a_convention() -> None:
    assert {family.preprocess for family in FAMILIES} <= set(PREPROCESS)
