"""Pictures in: data sets by name or folder, their splits, and the one road from a file to the model's input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitral.base.lazy import lazily

if TYPE_CHECKING:
    from vitral.data.datasets import Data, open_data
    from vitral.data.loader import Batch, Loader
    from vitral.data.preprocess import Preprocess, open_picture, transform
    from vitral.data.split import Split

__all__ = ["Batch", "Data", "Loader", "Preprocess", "Split", "open_data", "open_picture", "transform"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "datasets": ("Data", "open_data"),
        "loader": ("Batch", "Loader"),
        "preprocess": ("Preprocess", "open_picture", "transform"),
        "split": ("Split",),
    },
)
