"""Workers that decode: batches of bytes in a fixed order, whatever the number of workers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from vitral.base.errors import DataError, FailedError
from vitral.base.picture import Box
from vitral.data.images.augment import Policy, image_transform
from vitral.data.images.preprocess import size_of
from vitral.data.keys import generator, key
from vitral.data.splits.split import Split

_Address = tuple[int, int, int]
"""Position in the split, epoch, row in the epoch."""
_Read = tuple[torch.Tensor | None, int, str, str]
"""Pixels (None: unreadable), position, and the error's message and hint."""
_Reads = tuple[torch.Tensor | None, list[int], list[int], list[tuple[int, str, str]]]
"""Of a batch: pixels of those that can be read (None: of none), their rows in the batch, all positions, and the unreadable ones."""


class Stream:
    """One pool of workers for all epochs of a loader."""

    def __init__(self, split: Split, policy: Policy, seed: int, workers: int, pin: bool) -> None:
        self.addresses = _Addresses()
        self.loader = DataLoader(
            _Images(split, policy, seed),
            batch_sampler=self.addresses,
            collate_fn=_collate,
            num_workers=workers,
            generator=torch.Generator(),  # its own: each pass draws a number, and a run's dropout must not depend on that
            persistent_workers=workers > 0,
            prefetch_factor=4 if workers else None,
        )
        self.split, self.pin = split, pin

    def batches(
        self, addresses: list[list[_Address]], keep_size: bool
    ) -> Iterator[tuple[torch.Tensor | None, torch.Tensor, list[tuple[int, str, str]]]]:
        """(pixels (B, C, H, W) uint8, positions (B,), unreadable ones) for each batch of addresses.

        An unreadable picture is left out (pixels are None when all are) or, with `keep_size`, replaced by the readable one before it in
        the batch.
        """
        self.addresses.batches = addresses
        for pixels, good, positions, bad in self._reads():
            if pixels is None and not keep_size:
                yield None, torch.arange(0), bad
                continue
            if pixels is None:
                raise DataError(f"no picture of a batch can be read, such as {bad[0][1]}", "check the files")
            chosen = good
            if bad and keep_size:
                chosen = [_nearest_readable(number, good) for number in range(len(positions))]
                pixels = pixels[[good.index(number) for number in chosen]]
            read = torch.tensor([positions[number] for number in chosen])
            if self.pin:
                pixels, read = pixels.pin_memory(), read.pin_memory()
            yield pixels, read, bad

    def _reads(self) -> Iterator[_Reads]:
        """What the workers send; one that dies (killed, out of memory) is noticed by the loader within seconds."""
        try:
            yield from self.loader
        except RuntimeError as error:
            if not (match := re.search(r"DataLoader worker \(pid[^)]*\)[^\n]*", str(error))):
                raise
            raise FailedError(
                f"a process that reads pictures of {self.split.name} died ({match[0].strip(' .')})",
                "it may have run out of memory: use fewer --workers; go on with --resume",
            ) from error


def seconds_to_read(split: Split, policy: Policy, count: int = 48) -> float:
    """Of one training picture by one process: read, decoded, cut and resized; the mean over some that are spread out."""
    images = _Images(split, policy, 0)
    positions = np.unique(np.linspace(0, len(split) - 1, count).astype(int)).tolist()
    images[positions[0], 0, 0]  # imports and fills what is filled once
    began = time.perf_counter()
    for position in positions:
        images[position, 1, position]
    return (time.perf_counter() - began) / len(positions)


def _collate(reads: list[_Read]) -> _Reads:
    """In the worker: one tensor a batch goes to the parent, each of which costs it a file handle."""
    good = [number for number, read in enumerate(reads) if read[0] is not None]
    images = [reads[number][0] for number in good]
    pixels = torch.stack(images) if images else None  # type: ignore[arg-type]
    bad = [(position, message, hint) for image, position, message, hint in reads if image is None]
    return pixels, good, [read[1] for read in reads], bad


def _nearest_readable(number: int, good: list[int]) -> int:
    before = [other for other in good if other <= number]
    return before[-1] if before else good[0]


class _Addresses:
    """A batch sampler that the parent fills anew for each epoch; workers only ever see addresses."""

    def __init__(self) -> None:
        self.batches: list[list[_Address]] = []

    def __iter__(self) -> Iterator[list[_Address]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Images(Dataset[Any]):
    """Decode, cut (photographs: at random), resize; a function of the address."""

    def __init__(self, split: Split, policy: Policy, seed: int) -> None:
        self.split, self.policy, self.seed = split, policy, seed
        self.transform = None

    def __getitem__(self, address: _Address) -> _Read:
        position, epoch, row = address
        try:
            image = self.split.image(position)
            if self.policy.crop is None:
                pixels = torch.from_numpy(self.split.preprocess.pixels(image))
            else:
                u = generator(self.seed, "crop", epoch, row).random(self.policy.crop.columns, np.float32)
                width, height = size_of(image)
                left, top, wide, tall = self.policy.crop.box(u, height, width)
                pixels = self.split.preprocess.cut(image, Box(left, top, left + wide, top + tall))
        except DataError as error:
            return None, position, error.message, error.hint
        if self.policy.per_image is not None:
            if self.transform is None:  # made in the worker: torchvision is imported only where it is used
                self.transform = image_transform(self.policy.per_image)
            pixels = self.transform(pixels, key(self.seed, "sample", epoch, row))
        return pixels, position, "", ""
