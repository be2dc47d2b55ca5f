"""Feature vectors of a folder of pictures, in one file."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitral.base.errors import UsageError
from vitral.base.files import write_atomic
from vitral.base.progress import progress
from vitral.cost.precision import Answering, Precision, worth_bf16
from vitral.data.pictures import find_pictures, readable
from vitral.model.classifier import Classifier


def embed_folder(
    model: Classifier,
    folder: str | Path,
    out: str | Path,
    *,
    device: torch.device | str = "cpu",
    batch_size: int = 64,
    precision: Precision = "auto",
    quiet: bool = False,
) -> dict[str, Any]:
    """Write features (N, D) and paths (N, relative to the folder, sorted) to `out`; what was written, as plain values."""
    folder, paths = Path(folder), find_pictures(folder)
    if batch_size < 1:
        raise UsageError(f"a batch of {batch_size} pictures", "use a batch size of at least 1")
    model = model.to(device).eval()
    dtype = next(model.parameters()).dtype
    answer = Answering(model.pooled, torch.device(device), precision, worth=worth_bf16(model), answers=False)
    features, read, pictures = [], [], readable(paths, model)
    with torch.no_grad(), progress("Embedding", total=len(paths), quiet=quiet) as bar:
        while some := list(itertools.islice(pictures, batch_size)):
            images = torch.stack([picture.tensor for picture in some])
            features.append(answer(images.to(device, dtype)).float().cpu().numpy())
            read += [Path(picture.source).relative_to(folder).as_posix() for picture in some]
            bar.advance(len(some))
    values = np.concatenate(features)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, features=values, paths=np.array(read))
    written = write_atomic(Path(out) if Path(out).suffix == ".npz" else Path(f"{out}.npz"), buffer.getvalue())
    return {
        "path": str(written),
        "pictures": len(values),
        "skipped": len(paths) - len(values),
        "width": int(values.shape[1]),
        "dtype": answer.name,
    }
