"""Pictures that are copies of each other, exactly or nearly: shifted by a pixel or two, recompressed, brightened, mirrored.

Near ones are found in three steps, each on what the one before has left. Thumbnails of 8×8 are compared with all others (a matrix
product): correlation above 0.9. Then thumbnails of 32×32 without their coarse shades (less the mean of 5×5 around each pixel): above 0.1.
Then the same at every shift up to two pixels: above 0.6. Scenes with the same horizon pass the first step and fall at the last.

Calibrated on CIFAR-10, where pairs by chance have different classes more often than not: of the pairs between test and training above
0.6 all but 2 of 555 have one class (without the second step 99.3 %, above 0.5 97.4 %, above 0.4 91.6 %). They hold 333 test pictures;
people who looked at pairs found about 325 (Barz and Denzler 2020, ciFAIR).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitral.base.errors import DataError
from vitral.base.progress import track
from vitral.data.splits.split import Split

SIDE, _COARSE = 32, 8
_SIMILAR, _DETAIL, _NEAR = 0.9, 0.1, 0.6
"""What each step asks for."""
_SHIFT = 2
"""Pixels of a thumbnail."""
BLOCK = 2048
FINE = 16
"""Pixels a side from which a likeness tells a copy: of 8 × 8 pixels, 354 of the 360 test pictures of digits are like one to train on."""
MOST = 200_000
"""Pictures among which near copies are searched: the search compares all with all."""


def digest(pixels: np.ndarray) -> bytes:
    """The same for the same pixels in the same shape."""
    return hashlib.blake2b(np.ascontiguousarray(pixels).tobytes() + str(pixels.shape).encode(), digest_size=16).digest()


def exact_duplicates(train: Split, test: Split) -> int:
    """Test images whose bytes are those of a training image; only those of a size that both splits have are read."""
    if len(train) > MOST:
        return 0
    sizes = [[split.reader.size(index) for index in split.indices.tolist()] for split in (train, test)]
    shared = (set(sizes[0]) & set(sizes[1])) - {-1, None}

    def contents(split: Split, own: list[int | None]) -> Iterator[bytes]:
        for index, size in zip(split.indices.tolist(), own, strict=True):
            if size in shared:
                with contextlib.suppress(DataError):  # gone since: like nothing
                    yield hashlib.blake2b(split.reader.content(index), digest_size=16).digest()

    trained = set(contents(train, sizes[0]))
    return sum(content in trained for content in contents(test, sizes[1]))


def near_pairs(thumbnails: np.ndarray, quiet: bool = False) -> Iterator[tuple[int, int, float, bool]]:
    """(first, second, similarity, whether mirrored) of all near copies among uint8 (N, 3, 32, 32); first < second."""
    images = torch.from_numpy(thumbnails)
    coarse = torch.cat([_unit(F.adaptive_avg_pool2d(part.float(), _COARSE)) for part in images.split(BLOCK)])  # (N, 192)
    mirrored = torch.cat([_unit(F.adaptive_avg_pool2d(part.float(), _COARSE).flip(-1)) for part in images.split(BLOCK)])
    starts = range(0, len(images), BLOCK)
    for start in track(starts, "Comparing", total=len(starts), quiet=quiet):
        here = coarse[start : start + BLOCK]
        for flipped, others in ((False, coarse), (True, mirrored)):
            pairs = (here @ others[start:].T > _SIMILAR).nonzero() + start  # (pairs, 2)
            for block in pairs[pairs[:, 0] < pairs[:, 1]].split(BLOCK):
                yield from _confirmed(images, block, flipped)


def _confirmed(images: Tensor, pairs: Tensor, flipped: bool) -> Iterator[tuple[int, int, float, bool]]:
    first, second = (_details(images[pairs[:, column]].float()) for column in (0, 1))
    second = second.flip(-1) if flipped else second
    left = ((_unit(first) * _unit(second)).sum(dim=1) > _DETAIL).nonzero()[:, 0]
    if not len(left):
        return
    inner = SIDE - 2 * _SHIFT
    middle = _unit(first[left][:, :, _SHIFT:-_SHIFT, _SHIFT:-_SHIFT])
    best = torch.full((len(left),), -1.0)
    for down in range(2 * _SHIFT + 1):
        for right in range(2 * _SHIFT + 1):
            best = torch.maximum(best, (middle * _unit(second[left][:, :, down : down + inner, right : right + inner])).sum(dim=1))
    for row, score in zip(left.tolist(), best.tolist(), strict=True):
        if score > _NEAR:
            yield int(pairs[row, 0]), int(pairs[row, 1]), round(score, 4), flipped


def _details(images: Tensor) -> Tensor:
    return images - F.avg_pool2d(images, 5, 1, 2, count_include_pad=False)


def _unit(images: Tensor) -> Tensor:
    """As vectors of length 1 around their mean: products are correlations. One colour has no details, and is like nothing."""
    flat = images.flatten(1)
    flat = flat - flat.mean(dim=1, keepdim=True)
    length = flat.norm(dim=1, keepdim=True)
    return torch.where(length > 1e-3, flat / length.clamp(min=1e-3), torch.zeros(()))
