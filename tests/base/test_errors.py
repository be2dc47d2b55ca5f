from __future__ import annotations

import pickle

import pytest

from vitral.base.errors import ConfigError, DataError, ParityError, UsageError, VitralError, WeightsError, one_of


def test_one_line_with_a_next_step() -> None:
    error = DataError("cat.jpg is\n  not a picture", "use PNG\nor JPEG")
    assert str(error) == "cat.jpg is not a picture: use PNG or JPEG"
    assert (error.message, error.hint) == ("cat.jpg is not a picture", "use PNG or JPEG")
    assert str(VitralError("it failed")) == "it failed"


@pytest.mark.parametrize(
    ("kind", "code"), [(VitralError, 1), (DataError, 1), (WeightsError, 1), (ParityError, 1), (UsageError, 2), (ConfigError, 2)]
)
def test_exit_codes_and_the_way_through_a_pickle(kind: type[VitralError], code: int) -> None:
    back = pickle.loads(pickle.dumps(kind("what", "next")))
    assert type(back) is kind
    assert (back.message, back.hint, back.exit_code) == ("what", "next", code)


def test_families() -> None:
    assert issubclass(ParityError, WeightsError)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, UsageError)


def test_unknown_names() -> None:
    near = one_of("model", "b/15", ["b/16", "l/16", "cnn"])
    assert isinstance(near, UsageError)
    assert near.message == "unknown model 'b/15'"
    assert near.hint.startswith("did you mean b/16")
    assert one_of("method", "xyz", {"rollout": 1, "gradcam": 2}).hint == "use one of rollout, gradcam"
