"""How fast JPEG folders become batches, beside timm's loader: both read the same files, cut at random, mirror and normalise, in turn.

    python benchmarks/decode.py [--data FOLDER] [--pictures 64] [--size 224] [--workers 0] [--rounds 9] [--cache 256] [--json]

FOLDER has one folder of pictures a class; without it, cuttings of scikit-learn's two photographs are written as JPEGs of 500 × 375
pixels. Without workers CPU seconds of this process are compared, which others on the machine hardly change; with workers, the clock.
A ratio is taken within a round: the median, and 10 to 90 % of the rounds. `--cache`: ours again, from pictures kept at that short side.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from vitral.base.text import table
from vitral.config import DataConfig
from vitral.data.cache import cached
from vitral.data.images.augment import policy
from vitral.data.loader import Loader
from vitral.data.sources.fetch import data_root
from vitral.data.splits.open import open_data

BATCH = 32


def write_pictures(folder: Path, count: int) -> None:
    """JPEGs of 500 × 375 pixels, as they are on average in ImageNet, in two classes."""
    from sklearn.datasets import load_sample_images

    draw = np.random.default_rng(0)
    sources = [Image.fromarray(image) for image in load_sample_images().images]
    for number in range(count):
        source = sources[number % 2]
        left, top = int(draw.integers(0, source.width - 500)), int(draw.integers(0, source.height - 375))
        path = folder / str(number % 2) / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        source.crop((left, top, left + 500, top + 375)).save(path, quality=90)


def ours(folder: Path, size: int, workers: int, cache: int | None = None) -> Iterator[torch.Tensor]:
    """Batches as `vitral train` has them: every picture of every split to train on, cut and mirrored at random."""
    data = open_data(DataConfig(name=f"folder:{folder}", validation=0.0), image_size=size)
    crops = policy("standard", flip=True, photographs=True)
    split = data.train if cache is None else cached(data.train, cache, data_root(None))
    loader = Loader(split, batch_size=BATCH, policy=crops, train=True, workers=workers, placement="stream")
    return (batch.images for batch in itertools.chain.from_iterable(map(loader.epoch, itertools.count())))


def timms(folder: Path, size: int, workers: int) -> Iterator[torch.Tensor]:
    """Batches as timm's train.py has them: crops of 8 to 100 %, mirrored, bicubic, no colour changes; bytes until they are in a batch."""
    from timm.data import create_loader
    from timm.data.dataset import ImageDataset

    loader: Iterable[Any] = create_loader(
        ImageDataset(str(folder)),
        input_size=(3, size, size),
        batch_size=BATCH,
        is_training=True,
        interpolation="bicubic",
        color_jitter=None,  # type: ignore[arg-type]
        num_workers=workers,
        persistent_workers=workers > 0,
        device=torch.device("cpu"),
    )
    return (batch[0] for batch in itertools.chain.from_iterable(loader for _ in itertools.count()))


def measure(loaders: dict[str, Iterator[torch.Tensor]], batches: int, rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds a picture, by round."""
    times: dict[str, list[float]] = {name: [] for name in loaders}
    for number in range(rounds + 1):
        for name, loader in loaders.items():
            began = clock()
            for batch in itertools.islice(loader, batches):
                assert batch.is_floating_point()
            if number:  # the first one starts workers and fills their queues
                times[name].append((clock() - began) / (batches * BATCH))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--pictures", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--cache", nargs="*", type=int, default=[])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["VITRAL_DATA"] = scratch  # where the cache goes
        folder = asked.data or Path(scratch) / "pictures"
        if asked.data is None:
            write_pictures(folder, asked.pictures)
        loaders = {"vitral": ours(folder, asked.size, asked.workers), "timm": timms(folder, asked.size, asked.workers)}
        loaders |= {f"vitral, cache {kept}": ours(folder, asked.size, asked.workers, kept) for kept in asked.cache}
        times = measure(loaders, asked.batches, asked.rounds, time.perf_counter if asked.workers else time.process_time)
    rows = []
    for name, found in times.items():
        low, middle, high = np.quantile(np.divide(times["timm"], found), (0.1, 0.5, 0.9)).round(3).tolist()
        rows.append({"loader": name, "milliseconds": round(float(np.median(found)) * 1e3, 3), "ratio": middle, "low": low, "high": high})
    result = {"pictures": asked.pictures, "size": asked.size, "workers": asked.workers, "load_before": before, "rows": rows}
    if asked.json:
        print(json.dumps(result, indent=2))
        return
    lines = [
        [row["loader"], f"{row['milliseconds']:.2f} ms", f"{row['ratio']:.2f} × ({row['low']:.2f} to {row['high']:.2f})"] for row in rows
    ]
    print(table(lines, ["", "a picture", "timm's time over it"], "lr"))
    print(f"load before: {before:.1f}")


if __name__ == "__main__":
    main()
