"""What a layer costs as the number of tokens grows: R3's table I as functions, and where the square comes from in a ViT.

n tokens, d numbers per token, k kernel width, r neighbours a token may look at, m hidden numbers of the MLP.
R3 (after "Attention Is All You Need") gives the leading term per layer type; `flops` gives the multiply-adds times two of one
plain layer of that type, so that the table can be checked against counted operations.
"""

from __future__ import annotations

from dataclasses import dataclass


def self_attention(n: int, d: int) -> int:
    """Every token looks at every token."""
    return n * n * d


def recurrent(n: int, d: int) -> int:
    """One d × d step per token, one after the other."""
    return n * d * d


def convolution(n: int, d: int, k: int) -> int:
    """Each token reads k neighbours through d × d weights."""
    return k * n * d * d


def restricted_attention(n: int, d: int, r: int) -> int:
    """Every token looks at r tokens."""
    return r * n * d


FLOPS_PER_TERM = {"self-attention": 4, "recurrent": 4, "convolution": 2, "restricted self-attention": 4}
"""FLOPs of a plain layer divided by R3's term. Attention has two products (scores, mix), a recurrent step two matrices (input,
state), a convolution one; each multiply-add counts as two."""


@dataclass(frozen=True)
class LayerCost:
    """A row of R3's table, with numbers."""

    layer: str
    term: str
    operations: int
    flops: int


def layer_costs(n: int, d: int, k: int = 3, r: int = 9) -> list[LayerCost]:
    """R3's table I for given sizes."""
    rows = [
        ("self-attention", "n²·d", self_attention(n, d)),
        ("recurrent", "n·d²", recurrent(n, d)),
        ("convolution", "k·n·d²", convolution(n, d, k)),
        ("restricted self-attention", "r·n·d", restricted_attention(n, d, r)),
    ]
    return [LayerCost(layer, term, operations, FLOPS_PER_TERM[layer] * operations) for layer, term, operations in rows]


def even_tokens(d: int, m: int) -> int:
    """Number of tokens at which the quadratic part of a block, 4·n²·d, has caught up with the rest, 8·n·d² + 4·n·d·m.

    R3's table speaks of attention alone: in a ViT block the square stays the smaller part until here.
    """
    return 2 * d + m


def attention_map_ratio(image_size: tuple[int, int], grid: tuple[int, int]) -> float:
    """How much smaller the attention map is over patches than over pixels: (H·W)² / (n_h·n_w)²."""
    return (image_size[0] * image_size[1] / (grid[0] * grid[1])) ** 2
