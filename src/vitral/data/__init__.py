"""Pictures in: data sets by name or folder, their splits, and the one road from a file to the model's input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitral.base.lazy import lazily

if TYPE_CHECKING:
    from vitral.data.images.preprocess import Preprocess, open_picture, transform
    from vitral.data.loader import Batch, Loader
    from vitral.data.splits.open import Data, open_data
    from vitral.data.splits.split import Split

__all__ = ["Batch", "Data", "Loader", "Preprocess", "Split", "open_data", "open_picture", "transform"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "splits.open": ("Data", "open_data"),
        "loader": ("Batch", "Loader"),
        "images.preprocess": ("Preprocess", "open_picture", "transform"),
        "splits.split": ("Split",),
    },
)
