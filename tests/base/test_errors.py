from __future__ import annotations

import copy
import errno
import inspect
import pickle
import re
from pathlib import Path

import pytest

from vitral.base import errors
from vitral.base.errors import (
    ConfigError,
    DataError,
    MissingError,
    OutOfRangeError,
    ParityError,
    Stopped,
    UnknownNameError,
    UsageError,
    VitralError,
    WeightsError,
    one_of,
    out_of_range,
)
from vitral.base.files import read_json, sha256_file

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, VitralError)]
SOURCE = Path(errors.__file__).parents[1]


def test_one_line_with_a_next_step() -> None:
    error = DataError("cat.jpg is\n  not a picture", "use PNG\nor JPEG")
    assert str(error) == "cat.jpg is not a picture: use PNG or JPEG"
    assert (error.message, error.hint) == ("cat.jpg is not a picture", "use PNG or JPEG")
    assert str(VitralError("it failed")) == "it failed"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_exit_codes_and_the_way_through_a_pickle(kind: type[VitralError]) -> None:
    error = kind("what", "next")
    assert str(error) == "what: next"
    for back in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(back) is kind
        assert (back.message, back.hint) == ("what", "next")
        assert back.exit_code == (2 if issubclass(kind, UsageError) else 1)


@pytest.mark.parametrize(
    ("kind", "built_in"),
    [
        (UsageError, ValueError),
        (ConfigError, ValueError),
        (UnknownNameError, KeyError),
        (OutOfRangeError, IndexError),
        (DataError, ValueError),
        (WeightsError, ValueError),
        (ParityError, WeightsError),
        (MissingError, FileNotFoundError),
        (MissingError, DataError),
        (MissingError, WeightsError),
        (Stopped, RuntimeError),
    ],
)
def test_families(kind: type[VitralError], built_in: type[Exception]) -> None:
    assert issubclass(kind, built_in)


def test_every_error_is_also_a_built_in() -> None:
    for kind in KINDS:
        if kind is not VitralError:
            assert {base.__name__ for base in kind.__mro__ if base.__module__ == "builtins"} > {"Exception", "BaseException", "object"}, (
                kind
            )
    raised = [path.name for path in SOURCE.rglob("*.py") if re.search(r"\b(raise|return) VitralError\(", path.read_text(encoding="utf-8"))]
    assert raised == []


def test_stopping_is_no_error_of_the_system() -> None:
    # It is raised by signal handlers, also inside blocks that pass over a broken pipe.
    assert not issubclass(Stopped, OSError)


@pytest.mark.parametrize("read", [read_json, sha256_file])
def test_a_missing_file(read: object, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.json") as caught:
        read(tmp_path / "none.json")  # type: ignore[operator]
    assert isinstance(caught.value, MissingError)
    assert caught.value.errno == errno.ENOENT


def test_unknown_names() -> None:
    near = one_of("model", "b/15", ["b/16", "l/16", "cnn"])
    assert isinstance(near, UsageError)
    assert near.message == "unknown model 'b/15'"
    assert near.hint.startswith("did you mean b/16")
    assert one_of("method", "xyz", {"rollout": 1, "gradcam": 2}).hint == "use one of rollout, gradcam"


def test_numbers_out_of_range() -> None:
    assert str(out_of_range("block", 12, 12)) == "block 12 does not exist: this model has blocks 0 to 11"
    assert str(out_of_range("class", -1, 5)) == "class -1 does not exist: this model has classes 0 to 4"
    assert str(out_of_range("picture", 3, 2, "this tape")) == "picture 3 does not exist: this tape has pictures 0 to 1"
