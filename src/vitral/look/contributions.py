"""Direct logit attribution: what each head and each MLP adds to one class's logit. The parts sum to the logit.

The stream that the head reads is a sum: the embedding, and what every head, every attention bias and every MLP added. A norm on the way to
the head is not linear, but with its scale held at what it was for this picture it is, so the logit is a sum of the same parts, exactly.
What is read off the stream at a place is then (weights ⊙ stream) summed, with weights (T, D) that go backwards through the norms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from vitral.base.errors import UsageError
from vitral.base.numbers import to_double
from vitral.base.text import signed
from vitral.draw.matrices import ablation_figure
from vitral.draw.result import Result
from vitral.look.choice import Start, check_item, find_target, need_transformer, unused_note
from vitral.look.rerun import ensure_recorded
from vitral.model.norm import RMSNorm
from vitral.model.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Contributions(Result):
    """Parts of one logit."""

    heads: np.ndarray
    """(L, heads)"""
    attention_bias: np.ndarray
    """(L,): of the attention's output projection."""
    mlp: np.ndarray
    """(L,)"""
    embedding: float
    rest: float
    """Biases of the head and of the norms before it."""
    logit: float
    target: int
    name: str
    note: str = ""

    @property
    def total(self) -> float:
        """The sum of all parts: the logit."""
        return float(self.heads.sum() + self.attention_bias.sum() + self.mlp.sum() + self.embedding + self.rest)

    def numbers(self) -> dict[str, Any]:
        names = ("heads", "attention_bias", "mlp", "embedding", "rest", "logit", "target")
        return {name: getattr(self, name) for name in names}

    def draw(self) -> Figure:
        parts = np.stack([self.heads.sum(axis=1) + self.attention_bias, self.mlp], axis=1)
        title = f"{self.name}: logit {self.logit:.2f}; embedding {signed(self.embedding)}, rest {signed(self.rest)}"
        return ablation_figure(self.heads, parts, ("attention", "MLP"), title, "part of the logit")


def contributions(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class") -> Contributions:
    """What each head, each attention's bias and each MLP adds to the logit of `target`."""
    need_transformer(tape, "direct logit attribution")
    item, config, model = check_item(tape, item), tape.config, tape.model
    target = find_target(tape, item, target)
    if config.head_hidden or config.pool in ("attention", "map"):
        raise UsageError(
            "a head or a pooling that is not linear has no parts that sum to its logit", "use ablate or the lens for this model"
        )
    depth, inner = config.depth, ("attention.heads", "attention.output", "middle", "mlp.output", "output")
    names = ["embedding", "logits", *(f"blocks.{block}.{part}" for block in range(depth) for part in inner)]
    used, at = ensure_recorded(tape, item, names)
    heads, bias, mlp = np.zeros((depth, config.heads)), np.zeros(depth), np.zeros(depth)
    with torch.no_grad():
        weights, rest = _read(model, to_double(used[names[-1]][at]), target)
        for index in reversed(range(depth)):
            layer: Any = model.blocks[index]  # type: ignore[index]
            mixed, added, middle, made, _ = (to_double(used[f"blocks.{index}.{part}"][at]) for part in inner)
            before = to_double(used[f"blocks.{index - 1}.output" if index else "embedding"][at])
            scales = (layer.scale1, getattr(layer, "scale2", layer.scale1))  # a parallel block has one factor for both
            scale1, scale2 = (1.0 if scale is None else to_double(scale) for scale in scales)
            headed = _in_stream(layer.attention, mixed)  # (heads, T, D)
            if config.norm_order == "res-post":
                headed = _held(layer.norm1, headed, _scale(layer.norm1, added))
                added, made = (
                    _held(norm, value, _scale(norm, value)) + _bias(norm) for norm, value in ((layer.norm1, added), (layer.norm2, made))
                )
            headed, added, made = headed * scale1, added * scale1, made * scale2
            if config.norm_order == "post":
                weights, rest = _back(layer.norm2, weights, middle + made, rest)
            mlp[index] = float((weights * made).sum())
            if config.norm_order == "post":
                weights, rest = _back(layer.norm1, weights, before + added, rest)
            heads[index] = [float((weights * part).sum()) for part in headed]
            bias[index] = float((weights * added).sum()) - heads[index].sum()
        embedding = float((weights * to_double(used["embedding"][at])).sum())
    name, logit = tape.origin.class_name(target), float(used["logits"][at, target])
    return Contributions(heads, bias, mlp, embedding, rest, logit, target, name, unused_note("contributions", start=start))


def _back(norm: nn.Module, weights: torch.Tensor, value: torch.Tensor, rest: float) -> tuple[torch.Tensor, float]:
    """Weights of what a norm gives → weights of what it took, its scale held; its bias goes to the rest."""
    rest += float((weights * _bias(norm)).sum())
    return _slope(lambda part: (weights * _held(norm, part, _scale(norm, value))).sum(), value), rest


def _read(model: Any, stream: torch.Tensor, target: int) -> tuple[torch.Tensor, float]:
    """The last norm (its scale held), the pooling and the head's row of a class, as weights (T, D) of the stream and a constant."""
    scale = _scale(model.norm, stream)
    pool_scale = _scale(model.pool_norm, model.read((_held(model.norm, stream, scale) + _bias(model.norm))[None])[0])
    second = model.distillation_head
    share = 1.0 if second is None else 0.5

    def read(normed: torch.Tensor, own: Any = 0.0) -> torch.Tensor:
        pooled = _held(model.pool_norm, model.read(normed[None])[0], pool_scale) + own
        total = share * to_double(model.head.linear.weight)[target] @ pooled
        return total if second is None else total + share * to_double(second.linear.weight)[target] @ normed[1]

    bare = torch.zeros_like(stream)
    constant = float(read(bare + _bias(model.norm), _bias(model.pool_norm)))
    for head in (model.head, second):
        if head is not None and head.linear.bias is not None:
            constant += share * float(head.linear.bias[target])
    return _slope(lambda part: read(_held(model.norm, part, scale)), stream), constant


def _slope(read: Callable[[torch.Tensor], torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """The weights of a linear function of a stream (T, D)."""
    with torch.enable_grad():
        part = torch.zeros_like(like, requires_grad=True)
        return torch.autograd.grad(read(part), part)[0]


def _in_stream(attention: Any, mixed: torch.Tensor) -> torch.Tensor:
    """What each head's output (heads, T, d) becomes in the stream, (heads, T, D): a norm on the joined heads with its scale held."""
    heads, count, per_head = mixed.shape
    apart = torch.einsum("htd,hg->htgd", mixed, torch.eye(heads, dtype=mixed.dtype, device=mixed.device))  # all others zero
    apart = apart.reshape(heads, count, heads * per_head)
    norm = attention.joined_norm
    return _held(norm, apart, _scale(norm, apart.sum(dim=0))) @ to_double(attention.projection.weight).T


def _held(norm: nn.Module, part: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """A norm without its bias as the linear function it is once its scale is held."""
    if isinstance(norm, nn.LayerNorm):
        return (part - part.mean(dim=-1, keepdim=True)) / scale * to_double(norm.weight)
    if isinstance(norm, RMSNorm):
        return part / scale * to_double(norm.weight)
    return part


def _scale(norm: nn.Module, value: torch.Tensor) -> torch.Tensor:
    if isinstance(norm, nn.LayerNorm):
        return (value.var(dim=-1, keepdim=True, correction=0) + norm.eps).sqrt()
    if isinstance(norm, RMSNorm):
        return (value.square().mean(dim=-1, keepdim=True) + norm.epsilon).sqrt()
    return torch.ones((), dtype=value.dtype, device=value.device)


def _bias(norm: nn.Module) -> Any:
    return to_double(norm.bias) if isinstance(norm, nn.LayerNorm) else 0.0
