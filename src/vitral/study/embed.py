"""Feature vectors of a folder of pictures, in one file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitral.base.errors import DataError, MissingError, UsageError
from vitral.base.files import write_atomic
from vitral.base.progress import progress
from vitral.data.decode import EXTENSIONS
from vitral.data.preprocess import Preprocess
from vitral.model.classifier import Classifier


def embed_folder(
    model: Classifier, folder: str | Path, out: str | Path, *, device: torch.device | str = "cpu", batch_size: int = 64, quiet: bool = False
) -> dict[str, Any]:
    """Write features (N, D) and paths (N, relative to the folder, sorted) to `out`; what was written, as plain values."""
    folder = Path(folder)
    if not folder.is_dir():
        raise (DataError if folder.exists() else MissingError)(f"{folder} is not a folder", "name a folder of pictures")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS and path.is_file())
    if not paths:
        raise DataError(f"{folder} holds no pictures", f"files ending in {', '.join(sorted(EXTENSIONS))} are looked for")
    if batch_size < 1:
        raise UsageError(f"a batch of {batch_size} pictures", "use a batch size of at least 1")
    preprocess, model = Preprocess.of(model), model.to(device).eval()
    dtype = next(model.parameters()).dtype
    features = []
    with torch.no_grad(), progress("Embedding", total=len(paths), quiet=quiet) as bar:
        for start in range(0, len(paths), batch_size):
            some = paths[start : start + batch_size]
            features.append(model.pooled(preprocess.batch(some).to(device, dtype)).float().cpu().numpy())
            bar.advance(len(some))
    values = np.concatenate(features)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, features=values, paths=np.array([path.relative_to(folder).as_posix() for path in paths]))
    written = write_atomic(Path(out) if Path(out).suffix == ".npz" else Path(f"{out}.npz"), buffer.getvalue())
    return {"path": str(written), "pictures": len(values), "width": int(values.shape[1])}
