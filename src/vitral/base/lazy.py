"""What is loaded when it is first used, so that importing stays quick and light: names of our packages, libraries that few things need."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from vitral.base.errors import NotInstalledError

EXTRAS = {
    "fastapi": "web",
    "uvicorn": "web",
    "timm": "hub",
    "transformers": "hub",
    "huggingface_hub": "hub",
    "datasets": "hub",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "ray": "ray",
    "tensorboard": "tensorboard",
}
"""Library → the extra of Vitral that installs it."""


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


def needed(module: str, what: str) -> Any:
    """A module of another library, which `what` needs; one line where it is not installed, or does not fit the PyTorch that is."""
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError, OSError) as error:  # a torchvision made for another PyTorch ends in a RuntimeError
        library = module.partition(".")[0]
        absent = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == library
        why = "is not installed" if absent else f"cannot be loaded ({str(error).partition(chr(10))[0][:120]})"
        raise NotInstalledError(f"{what} needs {library}, which {why}", how_to_install(library)) from None


def how_to_install(library: str) -> str:
    if library == "torchvision":
        return f"install the one that belongs to PyTorch {version('torch')}, from where that came"
    return f"pip install 'vitral[{EXTRAS[library]}]'" if library in EXTRAS else f"pip install {library}"
