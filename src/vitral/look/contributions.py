"""Direct logit attribution: what each head and each MLP adds to one class's logit. The parts sum to the logit.

The stream that the head reads is a sum: the embedding, and what every head, every attention bias and every MLP added. The last norm is not
linear, but with its scale held at what it was for this picture it is, so the logit is a sum of the same parts, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from vitral.base.errors import UsageError
from vitral.draw.palette import ShowsItself
from vitral.draw.switch_off import ablation_figure
from vitral.look.choice import Start, check_item, find_target, need_transformer, unused
from vitral.look.maps import precise
from vitral.look.rerun import with_values
from vitral.model.norm import RMSNorm
from vitral.model.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Contributions(ShowsItself):
    """Parts of one logit."""

    heads: np.ndarray
    """(L, heads)"""
    attention_bias: np.ndarray
    """(L,): of the attention's output projection."""
    mlp: np.ndarray
    """(L,)"""
    embedding: float
    rest: float
    """Biases of the last norm and of the head."""
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
        title = f"{self.name}: logit {self.logit:.2f} = embedding {self.embedding:+.2f}, rest {self.rest:+.2f}, and these"
        return ablation_figure(self.heads, parts, ("attention", "MLP"), title, "part of the logit")


def contributions(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class") -> Contributions:
    """What each head, each attention's bias and each MLP adds to the logit of `target`."""
    need_transformer(tape, "direct logit attribution")
    item, config, model = check_item(tape, item), tape.config, tape.model
    target = find_target(tape, item, target)
    if config.norm_order == "post" or config.head_hidden or config.pool in ("attention", "map"):
        why = {True: "blocks that normalise after adding"}.get(config.norm_order == "post", "a head or a pooling that is not linear")
        raise UsageError(f"a model with {why} is no sum of its parts", "use ablate or the lens for this model")
    depth, heads = config.depth, config.heads
    inner = ("attention.heads", "attention.output", "mlp.output")
    names = ["embedding", "logits", *(f"blocks.{block}.{part}" for block in range(depth) for part in inner), f"blocks.{depth - 1}.output"]
    used, at = with_values(tape, item, names)
    with torch.no_grad():
        read = _reader(model, precise(used[names[-1]][at]), target)
        by_head, bias, mlp = np.zeros((depth, heads)), np.zeros(depth), np.zeros(depth)
        for index, block in enumerate(model.blocks):  # type: ignore[arg-type]
            layer: Any = block
            given = _given(layer.attention, precise(used[f"blocks.{index}.attention.heads"][at]))  # (heads, T, D)
            # A parallel block has one factor for both.
            scales = (layer.scale1, getattr(layer, "scale2", layer.scale1))
            scale1, scale2 = (1.0 if scale is None else precise(scale) for scale in scales)
            added, made = (precise(used[f"blocks.{index}.{part}.output"][at]) for part in ("attention", "mlp"))
            if config.norm_order == "res-post":
                given = _held(layer.norm1, given, _scale(layer.norm1, added))
                added, made = (
                    _held(norm, value, _scale(norm, value)) + _bias(norm) for norm, value in ((layer.norm1, added), (layer.norm2, made))
                )
            by_head[index] = [read(part * scale1) for part in given]
            bias[index] = read((added - given.sum(dim=0)) * scale1)
            mlp[index] = read(made * scale2)
        embedding = read(precise(used["embedding"][at]))
        logit = float(used["logits"][at, target])
        rest = read.constant
    name = tape.origin.class_name(target)
    return Contributions(by_head, bias, mlp, embedding, rest, logit, target, name, unused("contributions", start=start))


def _given(attention: Any, mixed: torch.Tensor) -> torch.Tensor:
    """What each head's output (heads, T, d) becomes in the stream, (heads, T, D): a norm on the joined heads with its scale held."""
    heads, count, per_head = mixed.shape
    apart = torch.einsum("htd,hg->htgd", mixed, torch.eye(heads, dtype=mixed.dtype, device=mixed.device))  # all others zero
    apart = apart.reshape(heads, count, heads * per_head)
    norm = attention.joined_norm
    return _held(norm, apart, _scale(norm, apart.sum(dim=0))) @ precise(attention.projection.weight).T


class _reader:
    """The last norm (its scale held), the pooling and the head's row of a class, as one linear function of the stream (T, D)."""

    def __init__(self, model: Any, stream: torch.Tensor, target: int) -> None:
        self.model, self.target = model, target
        self.scale = _scale(model.norm, stream)
        normed = _held(model.norm, stream, self.scale) + _bias(model.norm)
        pooled = model.read(normed[None])[0]
        self.pool_scale = _scale(model.pool_norm, pooled)
        self.constant = self._weigh(
            _bias(model.norm).expand_as(normed) if isinstance(model.norm, nn.LayerNorm) else torch.zeros_like(normed)
        )
        for layer, share in self._heads():
            self.constant += share * float(layer.bias[target]) if layer.bias is not None else 0.0
        own = _bias(model.pool_norm)
        if isinstance(own, torch.Tensor):
            self.constant += float(precise(model.head.linear.weight)[target] @ own) * self._heads()[0][1]

    def __call__(self, part: torch.Tensor) -> float:
        return self._weigh(_held(self.model.norm, part, self.scale))

    def _weigh(self, normed: torch.Tensor) -> float:
        model = self.model
        pooled = _held(model.pool_norm, model.read(normed[None])[0], self.pool_scale)
        total = 0.0
        for number, (layer, share) in enumerate(self._heads()):
            vector = pooled if number == 0 else normed[1]
            total += share * float(precise(layer.weight)[self.target] @ vector)
        return total

    def _heads(self) -> list[tuple[Any, float]]:
        second = self.model.distillation_head
        return [(self.model.head.linear, 1.0)] if second is None else [(self.model.head.linear, 0.5), (second.linear, 0.5)]


def _held(norm: nn.Module, part: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """A norm without its bias as the linear function it is once its scale is held."""
    if isinstance(norm, nn.LayerNorm):
        return (part - part.mean(dim=-1, keepdim=True)) / scale * precise(norm.weight)
    if isinstance(norm, RMSNorm):
        return part / scale * precise(norm.weight)
    return part


def _scale(norm: nn.Module, value: torch.Tensor) -> torch.Tensor:
    if isinstance(norm, nn.LayerNorm):
        return (value.var(dim=-1, keepdim=True, correction=0) + norm.eps).sqrt()
    if isinstance(norm, RMSNorm):
        return (value.square().mean(dim=-1, keepdim=True) + norm.epsilon).sqrt()
    return torch.ones((), dtype=value.dtype, device=value.device)


def _bias(norm: nn.Module) -> Any:
    return precise(norm.bias) if isinstance(norm, nn.LayerNorm) else 0.0
