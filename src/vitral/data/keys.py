"""Random numbers by address: the same (seed, purpose, epoch, position) gives the same numbers, whoever asks, in any order.

This is what makes batches independent of the number of workers and ranks, and a run resumable at any step.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def key(*parts: int | str) -> int:
    """A 63-bit number that depends on all parts."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(*parts: int | str) -> np.random.Generator:
    """A NumPy generator at this address."""
    return np.random.Generator(np.random.Philox(key(*parts)))


def uniforms(shape: tuple[int, ...], device: torch.device, *parts: int | str) -> torch.Tensor:
    """Numbers in [0, 1) made on `device`; the host never waits for them."""
    made = torch.Generator(device=device)
    made.manual_seed(key(*parts))
    return torch.rand(shape, generator=made, device=device)
