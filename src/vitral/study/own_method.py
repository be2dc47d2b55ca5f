"""A method of one's own: FILE.py:FUNCTION, named on the command line by who runs it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from vitral.base.errors import MissingError, UsageError
from vitral.look.method import Method


def load_method(name: str) -> Method:
    """The function as a method that may read everything a tape can hold. Its file is run, as Python runs any script of one's own."""
    file, sign, function = name.rpartition(":")
    if not sign or not file.endswith(".py"):
        raise UsageError(f"{name!r} names no function", "write FILE.py:FUNCTION")
    path = Path(file)
    if not path.is_file():
        raise MissingError(f"{path} does not exist", "name the file of your method")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not callable(found):
        raise UsageError(f"{path} has no function {function}", "write FILE.py:FUNCTION")
    return Method(
        found,
        (found.__doc__ or "a method of one's own").strip().splitlines()[0],
        ("target",),
        attention=True,
        features=True,
        gradients=True,
    )
