"""Batches on the device, decided by (seed, epoch, position) alone: not by workers, ranks, or where a run was resumed.

Two roads, one augmentation: `device` keeps the whole split on the device as bytes and gathers batches there; `stream` decodes in
workers (and cuts photographs at random there, where all their pixels are). From the bytes on, both run the same function.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from vitral.base.errors import DataError, UsageError
from vitral.data.images.augment import Augment, Policy, Views, image_transform
from vitral.data.images.augment import policy as named_policy
from vitral.data.images.mixing import draw_mix, mix_images, partners, whole_groups
from vitral.data.keys import generator, key, uniforms
from vitral.data.splits.split import Split
from vitral.data.stream import Stream

DEVICE_LIMIT = {"cuda": 8 << 30, "cpu": 2 << 30}
"""Bytes of pixels up to which a stored set lives on the device, a Mac's GPU apart (see `device_limit`)."""
_DECODE_LIMIT = 512 << 20
"""The same for files, which must all be decoded first."""
_FEW_BATCHES = 8
"""With fewer batches, dropping the last one would lose over 1/8 of the data, so it is filled up."""


@dataclass(frozen=True)
class Batch:
    """What one step gets."""

    images: torch.Tensor
    """(B, C, H, W) float, normalised, on the device; (B, V, C, H, W) where there are V views of each."""
    labels: torch.Tensor
    """(B,) int64; of several labels: (B, K) float, 1 for each that is there."""
    labels_b: torch.Tensor | None
    """The same of the picture mixed in; None: not mixed."""
    lam: torch.Tensor | None
    """(B,) float: weight of the first label."""
    indices: torch.Tensor
    """(B,) int64: positions in the split."""


class Loader:
    """Iterate with `epoch(number, start)`; `len` is the number of steps of one epoch."""

    def __init__(
        self,
        split: Split,
        *,
        batch_size: int,
        policy: Policy | Views | str = "none",
        device: torch.device | str = "cpu",
        seed: int = 0,
        train: bool = False,
        workers: int = 0,
        placement: str = "auto",
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"a batch of {batch_size} pictures", "use a batch size of at least 1")
        self.split, self.class_names, self.seed, self.train = split, split.class_names, seed, train
        self.multi_label = split.multi_label
        self.device = torch.device(device)
        self.rank, self.world = 0, 1
        if isinstance(policy, str):
            policy = named_policy(policy, flip=split.flip, photographs=split.photographs)
        views = policy if isinstance(policy, Views) else None
        self.policy = policy if train and isinstance(policy, Policy) else Policy("none")
        self.mixing = True
        """Switch MixUp and CutMix off, for the last share of a run."""
        self.placement_of = placement_of(split, self.policy, self.device, placement)
        self.augment = Augment(views or self.policy, split.preprocess, self.device, crop=self.placement_of == "device")
        self.labels = torch.from_numpy(split.labels.astype(np.float32 if split.multi_label else np.int64)).to(self.device)
        self.pixels: torch.Tensor | None = None
        self.transform = None
        self.stream: Stream | None = None
        if self.placement_of == "device":
            self.pixels = split.pixels().to(self.device)
            self.transform = image_transform(self.policy.per_image) if self.policy.per_image else None
        else:
            self.stream = Stream(split, self.policy, seed, workers, pin=self.device.type == "cuda")
        self.usable = np.array([position for position in range(len(split)) if position not in split.bad], np.int64)
        if not len(self.usable):
            raise DataError(f"{split.name} has no pictures that can be read", "check the files named above")
        self._requested = batch_size
        self.batch_size = batch_size if train else min(batch_size, len(self.usable))

    def for_rank(self, rank: int, world: int) -> Loader:
        """The same batches, of which this process loads and gives its own share."""
        if self._requested % world:
            raise DataError(f"a batch of {self._requested} cannot be shared by {world} processes", f"use a multiple of {world}")
        self.rank, self.world = rank, world
        if world > 1:
            self.batch_size = self._requested
        return self

    def __len__(self) -> int:
        return _steps(len(self.usable), self.batch_size) if self.train else math.ceil(len(self.usable) / self.batch_size)

    def order(self, epoch: int) -> np.ndarray:
        """Positions in the split in the order of this epoch. To train, whole batches: many leave out the rest, of few the last one is
        filled up from the first."""
        if not self.train:
            return self.usable
        return np.resize(generator(self.seed, "order", epoch).permutation(self.usable), len(self) * self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from step `start` on."""
        order = self.order(epoch)
        if self.stream is None:
            moved = torch.from_numpy(order).to(self.device)
            for step in range(start, len(self)):
                first, last = self._rows(step)
                indices = moved[first:last]
                yield self._finish(self._gather(indices, epoch, first), indices, epoch, step)
            return
        addresses = [[(int(order[row]), epoch, row) for row in range(*self._rows(step))] for step in range(start, len(self))]
        for step, (images, positions, bad) in zip(
            range(start, len(self)), self.stream.batches(addresses, keep_size=self.train), strict=True
        ):
            for position, message, hint in bad:
                self.split.skip_unreadable(position, DataError(message, hint))
            if images is None:
                continue
            # Apple's GPU may read the host's memory after it was given to others (pytorch#189690): there we wait.
            indices, images = (part.to(self.device, non_blocking=self.device.type == "cuda") for part in (positions, images))
            yield self._finish(images, indices, epoch, step)

    def _size(self, step: int) -> int:
        return self.batch_size if self.train else min(self.batch_size, len(self.usable) - step * self.batch_size)

    def _own(self, step: int) -> tuple[int, int]:
        """First and last row of a batch that this rank trains on."""
        total = self._size(step)
        return total * self.rank // self.world, total * (self.rank + 1) // self.world

    def _rows(self, step: int) -> tuple[int, int]:
        """First and last row of an epoch that this rank loads: its own, and to mix, whole groups around them."""
        low, high = self._own(step)
        if self.policy.mixup + self.policy.cutmix > 0:
            low, high = whole_groups(low, high, self._size(step))
        return step * self.batch_size + low, step * self.batch_size + high

    def _gather(self, indices: torch.Tensor, epoch: int, first: int) -> torch.Tensor:
        assert self.pixels is not None
        images = self.pixels[indices]
        if self.transform is None:
            return images
        keys = [key(self.seed, "sample", epoch, first + row) for row in range(len(indices))]
        return torch.stack([self.transform(image, number) for image, number in zip(images, keys, strict=True)])

    def _finish(self, images: torch.Tensor, indices: torch.Tensor, epoch: int, step: int) -> Batch:
        """Augment, normalise and mix the loaded rows, then keep this rank's own."""
        labels = self.labels[indices]
        total = self._size(step)
        if not self.train and not self.augment.columns:
            return Batch(self.augment(images, images), labels, None, None, indices)
        # Numbers for the whole batch, of which each rank reads its rows: the same image gets the same ones on any rank.
        u = uniforms((total, self.augment.columns), self.device, self.seed, "augment", epoch, step)
        first, last = (row - step * self.batch_size for row in self._rows(step))
        own = slice(*(row - first for row in self._own(step)))
        images = self.augment(images, u[first : first + len(images)])  # fewer where one could not be read
        policy, size = self.policy, (images.shape[-2], images.shape[-1])
        mix = draw_mix(policy.mixup, policy.cutmix, size, self.seed, epoch, step) if self.mixing else None
        if mix is None:
            return Batch(images[own], labels[own], None, None, indices[own])
        partner = partners(first, last, total, mix.shift, self.device)
        labels_b = labels[partner][own]
        lam = torch.full((len(labels_b),), mix.lam, device=self.device)
        return Batch(mix_images(images, partner, mix)[own], labels[own], labels_b, lam, indices[own])


def even_batches(images: int, batch: int, unit: int = 1) -> tuple[int, int]:
    """(steps of an epoch, images of each) near batches of `batch`; a multiple of `unit`.

    A set of few batches is divided evenly, so that every image is learnt from in every epoch.
    """
    steps = _steps(images, batch)
    return steps, batch if images >= _FEW_BATCHES * batch else -(-math.ceil(images / steps) // unit) * unit


def _steps(images: int, batch: int) -> int:
    return images // batch if images >= _FEW_BATCHES * batch else math.ceil(images / batch)


def placement_of(split: Split, policy: Policy, device: torch.device, placement: str) -> str:
    """`device`: the whole split lives there; `stream`: batches are decoded as they come."""
    if placement != "auto":
        return placement
    if split.is_array:
        return "device" if split.bytes <= device_limit(device) else "stream"
    # Photographs to be cut at random keep their full resolution only in the stream.
    return "device" if policy.crop is None and split.bytes <= _DECODE_LIMIT else "stream"


def device_limit(device: torch.device) -> int:
    """A Mac's GPU shares the main memory, so a quarter of what its driver recommends is for pixels."""
    if device.type == "mps":
        return min(DEVICE_LIMIT["cuda"], torch.mps.recommended_max_memory() // 4)
    return DEVICE_LIMIT.get(device.type, DEVICE_LIMIT["cpu"])
