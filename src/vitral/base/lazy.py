"""Packages that load a name when it is first used, so that importing them stays quick and light."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazily(package: str, names: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package. `names` of each of its modules; under the empty name, modules themselves."""
    homes = {name: module for module, held in names.items() for name in held}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{homes[name] or name}")
        value = getattr(module, name) if homes[name] else module
        setattr(sys.modules[package], name, value)  # found at once the next time
        return value

    return load, lambda: sorted(homes)
