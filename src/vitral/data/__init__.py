"""Pictures in: data sets by name or folder, their splits, and the one road from a file to the model's input."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitral.data.datasets import Data, open_data
    from vitral.data.loader import Batch, Loader
    from vitral.data.preprocess import Preprocess, open_picture
    from vitral.data.split import Split

__all__ = ["Batch", "Data", "Loader", "Preprocess", "Split", "open_data", "open_picture"]

_HOMES = {
    "Data": "datasets",
    "open_data": "datasets",
    "Batch": "loader",
    "Loader": "loader",
    "Preprocess": "preprocess",
    "open_picture": "preprocess",
    "Split": "split",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'vitral.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"vitral.data.{_HOMES[name]}"), name)
