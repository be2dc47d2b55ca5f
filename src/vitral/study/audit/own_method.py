"""A method of one's own: FILE.py:FUNCTION, named on the command line by who runs it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitral.base.errors import MissingError, UsageError, VitralError
from vitral.base.numbers import to_double
from vitral.draw.heatmap import Heatmap
from vitral.look.method import Method
from vitral.look.rerun import rewatch
from vitral.model.tape import Tape

_WRITE = "write FILE.py:FUNCTION"


def load_method(name: str) -> Method:
    """The function as a method, given a tape that holds everything. Its file is run, as Python runs any script of one's own."""
    file, sign, function = name.rpartition(":")
    if not sign or not file.endswith(".py"):
        raise UsageError(f"{name!r} names no function", _WRITE)
    path = Path(file)
    if not path.is_file():
        raise MissingError(f"{path} does not exist", "name the file of your method")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _failed(str(path), error) from error
    result = getattr(module, function, None)
    if not callable(result):
        raise UsageError(f"{path} has no function {function}", _WRITE)
    summary = (getattr(result, "__doc__", None) or "a method of one's own").strip().splitlines()[0]
    return Method(_checked(result, name, function), summary, ("target",))


def _checked(function: Callable[..., Any], name: str, called: str) -> Callable[..., Heatmap]:
    """What a stranger's function gives, as a map; what it cannot mean is refused in one line."""

    def own(tape: Tape, item: int = 0, target: int | None = None) -> Heatmap:
        try:
            made = function(rewatch(tape, slice(None), keep="*", gradients=True), item, target=target)
            values = getattr(made, "grid", made)
            values = np.asarray(to_double(values) if isinstance(values, torch.Tensor) else values, dtype=np.float64)  # host
        except VitralError:
            raise
        except Exception as error:
            raise _failed(name, error) from error
        if values.ndim != 2 or not np.isfinite(values).all():
            kind = f"an array of {values.ndim} dimensions" if values.ndim != 2 else "numbers that are NaN or infinite"
            raise UsageError(f"{name} gave {kind}", "give a Heatmap, or an array (rows, columns) of numbers")
        return Heatmap(values, called, target=target, item=item)

    own.__name__ = called
    return own


def _failed(name: str, error: Exception) -> UsageError:
    return UsageError(f"{name} failed: {type(error).__name__}: {error}".splitlines()[0], "mend it; --debug shows where")
