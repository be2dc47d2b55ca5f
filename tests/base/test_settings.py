from dataclasses import dataclass
from typing import Literal

import pytest

from vitral.base.errors import ConfigError
from vitral.base.settings import at_least, check_share, check_values, fit_value, read_value, say_kind


@dataclass(frozen=True)
class Settings:
    kind: Literal["a", "b"] | None = "a"
    size: float = 1.0
    count: int = 2


@pytest.mark.parametrize(
    ("hint", "value", "wanted"),
    [
        (float, 3, (3.0,)),
        (int, True, None),
        (int, 3.0, None),
        (int | None, None, (None,)),
        (Literal["a", "b"], "b", ("b",)),
        (Literal["a", "b"], "c", None),
        (tuple[int, ...], [1, 2], ((1, 2),)),
        (tuple[float, float], [1, 2, 3], None),
        (tuple[float, float] | None, [1, 2], ((1.0, 2.0),)),
        (str, 1, None),
    ],
)
def test_a_value_fits_its_type_or_not_at_all(hint: object, value: object, wanted: object):
    found = fit_value(hint, value)
    assert found == wanted and (found is None or type(found[0]) is type(wanted[0]))  # type: ignore[index]


@pytest.mark.parametrize(
    ("hint", "written", "wanted"),
    [
        (str | None, "none", (None,)),
        (float | None, "None", (None,)),
        (Literal["none", "standard"], "none", ("none",)),
        (bool, "yes", (True,)),
        (float, ".5", (0.5,)),
        (float, "3e-3", (3e-3,)),
        (tuple[int, int], "4", ((4, 4),)),
        (tuple[float, float], "0.9,0.95", ((0.9, 0.95),)),
        (str | None, "timm:vit_tiny", ("timm:vit_tiny",)),
        (int, "many", None),
    ],
)
def test_a_word_is_read_as_its_setting_wants_it(hint: object, written: str, wanted: object):
    assert read_value(hint, written) == wanted


def test_types_are_said_in_words():
    assert say_kind(Literal["a", "b"]) == "one of a, b" and say_kind(int) == "int"


@pytest.mark.parametrize(
    ("settings", "check", "message"),
    [
        (Settings(size=float("nan")), check_values, "size = nan"),
        (Settings(kind="c"), check_values, "kind = 'c' is unknown"),  # type: ignore[arg-type]
        (Settings(count=1), lambda settings: at_least(settings, "count", 2), "count = 1"),
        (Settings(count=True), lambda settings: at_least(settings, "count", 1), "count = True"),
        (Settings(size=1.0), lambda settings: check_share(settings, "size"), "size = 1.0 is not a share"),
        (Settings(size=-0.1), lambda settings: check_share(settings, "size", closed=True), "size = -0.1 is not a share"),
    ],
)
def test_what_cannot_be_meant_is_named(settings: Settings, check: object, message: str):
    with pytest.raises(ConfigError, match=message):
        check(settings)  # type: ignore[operator]


def test_what_can_be_meant_passes():
    check_values(Settings(kind=None))
    at_least(Settings(), "count", 2)
    check_share(Settings(size=1.0), "size", closed=True)
