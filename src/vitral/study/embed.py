"""What a model's head would read of every picture of a folder: written down, drawn as a map, searched for neighbours and near-duplicates.

N pictures, D numbers each. Likeness is the cosine of two vectors after the mean of all was taken off: what every picture has in common
would make all of them alike.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from vitral.base.errors import UsageError, VitralError
from vitral.base.files import write_atomic
from vitral.base.numbers import to_numpy
from vitral.base.progress import progress
from vitral.base.records import write_records
from vitral.config.formats import Precision
from vitral.cost.precision import Answering, worth_bf16
from vitral.data.images.preprocess import open_picture
from vitral.data.sources.folders import SPLITS
from vitral.data.sources.pictures import find_pictures, open_readable
from vitral.model.classifier import Classifier
from vitral.run.answers import small
from vitral.weights.load import load

CHUNK = 512
"""Pictures that are compared with all others at a time."""
_DUPLICATE = 0.95
"""Cosine from which two pictures are nearly the same: docs/guide/data.md says what it finds."""
_MAPPED = 2000
"""Pictures of a t-SNE map, and thumbnails of a page; of more, the map is of the two main directions and a page shows some."""


@dataclass(frozen=True)
class Embedding:
    features: np.ndarray
    """(N, D)."""
    paths: tuple[str, ...]
    """Relative to the folder, sorted."""
    labels: tuple[str, ...]
    """The class folder of each, as `folder:PATH` would read it; empty where there is none."""
    folder: Path
    skipped: int = 0
    """Pictures that could not be read."""
    thumbnails: dict[int, Image.Image] = field(default_factory=dict, repr=False)
    """Small pictures by number; at most 2,000, evenly spread."""
    dtype: str = "float32"
    """That the model computed in."""

    @cached_property
    def directions(self) -> np.ndarray:
        """(N, D) of length 1, the mean taken off."""
        centred = self.features - self.features.mean(axis=0)
        return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)

    def neighbours(self, count: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """(N, count) numbers of the nearest other pictures, nearest first, and their cosines."""
        count = min(count, len(self.paths) - 1)
        who, near = np.zeros((len(self.paths), count), np.int64), np.zeros((len(self.paths), count))
        for start in range(0, len(self.paths), CHUNK):
            likeness = self._likeness(start)
            order = np.argsort(-likeness, axis=1, kind="stable")[:, :count]
            who[start : start + CHUNK], near[start : start + CHUNK] = order, np.take_along_axis(likeness, order, axis=1)
        return who, near

    def near_duplicates(self, least: float = _DUPLICATE) -> list[tuple[int, int, float]]:
        """Pairs of pictures with their cosine, the most alike first."""
        pairs: list[tuple[int, int, float]] = []
        for start in range(0, len(self.paths), CHUNK):
            likeness = self._likeness(start)
            rows, columns = np.nonzero(likeness >= least)
            pairs += [(start + int(a), int(b), float(likeness[a, b])) for a, b in zip(rows, columns, strict=True) if start + a < b]
        return sorted(pairs, key=lambda pair: (-round(pair[2], 6), pair[:2]))

    def _likeness(self, start: int) -> np.ndarray:
        """(c, N) cosines of some pictures with all; of one with itself: less than any."""
        likeness = self.directions[start : start + CHUNK] @ self.directions.T
        likeness[np.arange(len(likeness)), start + np.arange(len(likeness))] = -2
        return likeness

    @property
    def agreement(self) -> float | None:
        """Share of the pictures whose nearest neighbour has the same label; None: there are not two labels."""
        if len(set(self.labels)) < 2:
            return None
        labels = np.array(self.labels)
        return float((labels == labels[self.neighbours(1)[0][:, 0]]).mean())

    def map(self, kind: Literal["auto", "tsne", "pca"] = "auto") -> np.ndarray:
        """(N, 2): pictures that are alike near each other. The same for the same features: nothing of it is left to chance."""
        centred = self.features - self.features.mean(axis=0)
        _, _, main = np.linalg.svd(centred[:: max(1, len(centred) // 5000)], full_matrices=False)
        main = main * np.sign(main[np.arange(len(main)), np.abs(main).argmax(axis=1)])[:, None]  # a direction has no sign of its own
        flat = centred @ main[:2].T if len(main) > 1 else np.pad(centred @ main[:1].T, ((0, 0), (0, 1)))
        if kind == "pca" or (kind == "auto" and not 10 <= len(centred) <= _MAPPED):
            return flat
        from sklearn.manifold import TSNE

        perplexity = min(30.0, (len(centred) - 1) / 3)
        start = (flat / max(float(flat[:, 0].std()), 1e-12) * 1e-4).astype(np.float32)
        fitted = TSNE(2, perplexity=perplexity, metric="cosine", init=start, random_state=0)  # type: ignore[arg-type]
        return fitted.fit_transform(centred @ main[:50].T)

    def write(self, path: str | Path) -> Path:
        """`features`, `paths` and `labels` as .npz, or the columns path, label and features as .parquet."""
        path = Path(path)
        if path.suffix.lower() == ".parquet":
            return write_records(path, [{"path": p, "label": n, "features": row.tolist()} for p, n, row in self._rows()])
        buffer = io.BytesIO()
        np.savez_compressed(buffer, features=self.features, paths=np.array(self.paths), labels=np.array(self.labels))
        return write_atomic(path if path.suffix == ".npz" else Path(f"{path}.npz"), buffer.getvalue())

    def _rows(self) -> zip[tuple[str, str, np.ndarray]]:
        return zip(self.paths, self.labels, self.features, strict=True)

    def summary(self) -> dict[str, Any]:
        return {"pictures": len(self.paths), "skipped": self.skipped, "width": int(self.features.shape[1]), "dtype": self.dtype}


def embed(
    model: str | Path | Classifier,
    folder: str | Path,
    *,
    device: torch.device | str | None = None,
    batch_size: int = 64,
    precision: Precision = "auto",
    thumbnails: bool = False,
    quiet: bool = False,
) -> Embedding:
    """Features of all pictures in a folder and its folders; `device` None: where the model is. A file that cannot be read is named.

    found = vitral.study.embed("vit_tiny.safetensors", "photos")
    found.near_duplicates()     # (first, second, cosine), the most alike first
    """
    folder, paths = Path(folder), find_pictures(folder)
    if batch_size < 1:
        raise UsageError(f"a batch of {batch_size} pictures", "use a batch size of at least 1")
    model = model if isinstance(model, Classifier) else load(model)
    model = (model if device is None else model.to(device)).eval()
    weight = next(model.parameters())
    answer = Answering(model.pooled, weight.device, precision, worth=worth_bf16(model), answers=False)
    step = -(-len(paths) // _MAPPED)
    features, read, small_images, pictures = [], [], {}, open_readable(paths, model)
    with torch.no_grad(), progress("Embedding", total=len(paths), quiet=quiet) as bar:
        while some := list(itertools.islice(pictures, batch_size)):
            images = torch.stack([picture.tensor for picture in some])
            features.append(to_numpy(answer(images.to(weight.device, weight.dtype)).float()))
            if thumbnails:
                small_images |= {len(read) + i: small(p.original) for i, p in enumerate(some) if (len(read) + i) % step == 0}
            read += [Path(picture.source).relative_to(folder).as_posix() for picture in some]
            bar.advance(len(some))
    return Embedding(
        np.concatenate(features), tuple(read), tuple(map(label_of, read)), folder, len(paths) - len(read), small_images, answer.name
    )


def nearest(
    model: Classifier, picture: Callable[[int], Any], asked: Sequence[int], among: Iterable[int], count: int = 3, batch_size: int = 64
) -> dict[int, list[tuple[int, float]]]:
    """For each number asked: its nearest other pictures among these, nearest first, with their cosines.

    `picture` opens one by its number; those that cannot be opened are left out.
    """
    weight, among = next(model.eval().parameters()), set(among)
    numbers: list[int] = []
    features: list[np.ndarray] = []
    queue = iter(dict.fromkeys([*asked, *sorted(among)]))
    with torch.no_grad(), progress("Neighbours", total=len({*asked, *among})) as bar:
        while some := list(itertools.islice(queue, batch_size)):
            tensors = []
            for number in some:
                try:
                    tensors.append(open_picture(picture(number), model).tensor)
                    numbers.append(number)
                except (OSError, VitralError):  # moved, deleted, or no picture any more
                    continue
            if tensors:
                features.append(to_numpy(model.pooled(torch.stack(tensors).to(weight.device, weight.dtype)).float()))
            bar.advance(len(some))
    if not numbers:
        return {}
    directions = Embedding(np.concatenate(features), tuple(map(str, numbers)), ("",) * len(numbers), Path()).directions
    bank = np.array([index for index, number in enumerate(numbers) if number in among], np.int64)
    neighbours = {}
    for index, number in enumerate(numbers[: len(set(numbers) & set(asked))]):  # those asked for come first
        others = bank[bank != index]
        likeness = directions[others] @ directions[index]
        neighbours[number] = [(numbers[others[each]], float(likeness[each])) for each in np.argsort(-likeness, kind="stable")[:count]]
    return neighbours


def label_of(path: str) -> str:
    """The class folder that a picture lies in: the first folder of its path, or the one after train, val or test."""
    folders = list(Path(path).parts[:-1])
    if len(folders) > 1 and folders[0].lower() in itertools.chain(*SPLITS.values()):
        folders = folders[1:]
    return folders[0] if folders else ""
