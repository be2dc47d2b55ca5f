"""Weights in 8 bits: one scale per output channel; better where it is known what they are multiplied with.

K inputs and N outputs of a linear layer, its weight as (K, N).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEVELS = 127
"""Of weights, and of activations to either side of zero."""
SMALLEST = 1e-12
"""What zeros are divided by."""
_BALANCE = 0.8
"""How much of an input's size its weights take over (SmoothQuant's alpha). 0.5, 0.65 and 0.8 were tried, docs/LOG.md."""
_DAMPING = 0.01
"""Added to the moments, as a share of their mean: GPTQ's."""


@dataclass(frozen=True)
class Inputs:
    """What a layer was given on some images."""

    moments: np.ndarray
    """(K, K): the mean of xᵀx over all rows."""
    largest: np.ndarray
    """(K,): the largest size of each input."""

    def times(self, factors: np.ndarray) -> Inputs:
        """Of the same inputs, each multiplied by its factor."""
        return Inputs(self.moments * factors[:, None] * factors[None], self.largest * np.abs(factors))


def round_weights(weight: np.ndarray, axis: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """`weight` as int8 (−127 to 127) and one float32 scale per output channel, which lie along `axis`: weight ≈ int8 · scale."""
    others = tuple(number for number in range(weight.ndim) if number != axis % weight.ndim)
    largest = np.abs(weight).max(axis=others, keepdims=True)
    scale = (np.maximum(largest, SMALLEST) / LEVELS).astype(np.float32)
    return np.rint(weight / scale).clip(-LEVELS, LEVELS).astype(np.int8), scale.reshape(-1)


def gptq_round(weight: np.ndarray, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """The same for a weight (K, N) whose inputs are known: what rounding one row costs is made good by the rows that are not rounded yet.

    GPTQ (Frantar and others, 2022), the inputs of largest moment first; each step solves for the least change of x @ weight.
    """
    scale = round_weights(weight)[1]
    order = np.argsort(-np.diag(inputs.moments), kind="stable")
    moments = inputs.moments[np.ix_(order, order)].astype(np.float64)
    moments[np.diag_indices_from(moments)] += max(SMALLEST, _DAMPING * float(np.diag(moments).mean()))
    spread = np.linalg.cholesky(np.linalg.inv(moments)).T  # (K, K), upper
    left = weight[order].astype(np.float64) / scale  # in steps of each column's scale
    rounded = np.zeros_like(left)
    for row in range(len(left)):
        rounded[row] = np.rint(left[row]).clip(-LEVELS, LEVELS)
        left[row + 1 :] -= np.outer(spread[row, row + 1 :] / spread[row, row], left[row] - rounded[row])
    out = np.empty_like(rounded, dtype=np.int8)
    out[order] = rounded
    return out, scale


def smoothquant_scales(weights: list[np.ndarray], inputs: Inputs) -> np.ndarray:
    """(K,) factors to divide the inputs by and multiply the weights with, so that no input is much larger than the others.

    SmoothQuant (Xiao and others, 2022); `weights`: all that take these inputs.
    """
    size = np.maximum(np.max([np.abs(weight).max(axis=1) for weight in weights], axis=0), 1e-5)
    factors = np.maximum(inputs.largest, 1e-5) ** _BALANCE / size ** (1 - _BALANCE)
    return (factors / np.exp(np.log(factors).mean())).astype(np.float32)
