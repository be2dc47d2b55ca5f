"""The record of one forward pass, and the way to reach into it.

A model that is given a tape calls `tape.record(name, value)` at every named place and goes on with what it
returns: its input, or an edit of it. So reading, gradients and switching heads off are one mechanism.
Attention has two modes: *read* (the fused kernel makes the output, the wanted rows of the weights are computed
beside it) and *use* (weights that are edited or differentiated are computed, recorded and used).
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from vitral.base.errors import UsageError, need_model, one_of, out_of_range
from vitral.base.text import html, table

if TYPE_CHECKING:
    from vitral.base.origin import Origin
    from vitral.base.picture import Picture
    from vitral.config import ModelConfig
    from vitral.model.classifier import Classifier

Edit = Callable[[torch.Tensor, str], torch.Tensor]
Reader = Callable[[torch.Tensor, str], None]

ATTENTION = "blocks.*.attention.weights"
ALWAYS = ("tokens", "logits")


class Tape:
    """What to keep, what to edit, and what was recorded.

    keep       names or patterns of values to keep (default: the attention weights of every block)
    blocks     only these blocks, for patterns that name blocks
    heads      only these heads of the attention weights
    rows       only these tokens' rows of the attention weights; "class" for the class token's
    edits      {pattern: function(value, name) → new value}
    readers    {pattern: function(value, name)}: see values as they pass; nothing is stored
    gradients  keep the graph, so that `gradient(name, target)` works
    """

    def __init__(
        self,
        model: Classifier,
        keep: str | Iterable[str] | None = None,
        *,
        blocks: Iterable[int] | None = None,
        heads: Iterable[int] | None = None,
        rows: str | Iterable[int] | None = None,
        edits: dict[str, Edit] | None = None,
        readers: dict[str, Reader] | None = None,
        gradients: bool = False,
    ) -> None:
        need_model(model)
        self.model: Classifier = getattr(model, "_orig_mod", model)  # a compiled model wraps the one with names
        self.config: ModelConfig = self.model.config
        self.origin: Origin = self.model.origin
        self.gradients = gradients
        self.pictures: list[Picture] | None = None
        self.images: torch.Tensor | None = None
        self._values: dict[str, torch.Tensor] = {}
        self._slopes: tuple[torch.Tensor, int | None, int | None, dict[str, torch.Tensor]] | None = None
        self._names = tuple(model.tape_names())
        if rows == "class" and self.config.is_transformer and not self.config.class_token:
            raise UsageError("this model has no class token whose row could be kept", "leave rows out, or give numbers of tokens")
        self._heads = self._check("head", heads, self.config.heads)
        self._rows = self._check("row", [0] if rows == "class" else rows, self.config.tokens) if self.config.is_transformer else None
        chosen_blocks = self._check("block", blocks, self.config.depth)
        if keep is None:
            keep = [ATTENTION] if self.config.is_transformer else model.map_names()
        patterns = [keep] if isinstance(keep, str) else list(keep)
        self._keep = {name for pattern in patterns for name in self._match(pattern) if _in_blocks(name, chosen_blocks)}
        self._keep |= {name for name in ALWAYS if name in self._names}
        self._edits = {name: edit for pattern, edit in (edits or {}).items() for name in self._match(pattern)}
        self._readers = {name: reader for pattern, reader in (readers or {}).items() for name in self._match(pattern)}
        if gradients and (heads is not None or rows is not None):
            raise UsageError("gradients need whole attention maps", "leave out heads and rows, and choose from the result")

    # What the model calls

    def record(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Keep, show or replace a value; the model goes on with what comes back."""
        if name in self._edits:
            value = self._edits[name](value, name)
        if self.gradients and name in self._keep and not value.requires_grad:
            value = value.requires_grad_()
        if name in self._readers:
            self._readers[name](value, name)
        if name in self._keep:
            whole = not name.endswith(".attention.weights") or name not in self._edits
            picked = value if whole else self.pick(value)
            self._values[name] = value if picked is value else picked.clone()  # a view would keep the whole value alive
        return value

    def wants(self, name: str) -> bool:
        return name in self._keep or name in self._readers

    def uses(self, name: str) -> bool:
        """Must this value itself go on through the model (edited or differentiated), not only be seen?"""
        return name in self._edits or (self.gradients and name in self._keep)

    def pick(self, value: torch.Tensor) -> torch.Tensor:
        """The wanted heads and rows of queries or weights (B, heads, T, …)."""
        value = self.pick_heads(value)
        return value if self._rows is None else _take(value, 2, self._rows)

    def pick_heads(self, value: torch.Tensor) -> torch.Tensor:
        return value if self._heads is None else _take(value, 1, self._heads)

    # What the user calls

    def __getitem__(self, name: str) -> torch.Tensor:
        if name in self._values:
            return self._values[name]
        if name not in self._names:
            raise one_of("name", name, self._names)
        reason = "the model has not run yet" if not self._values else "it was not kept"
        raise UsageError(f"nothing is recorded under {name!r}: {reason}", f"call vitral.watch(model, x, keep=[{name!r}])")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def names(self) -> list[str]:
        """The names that were recorded, in the order of the forward pass."""
        return [name for name in self._names if name in self._values]

    def __repr__(self) -> str:
        """What it holds: names (alike ones once, with their number) and shapes."""
        if not self._values:
            return f"Tape(nothing recorded yet, {len(self._keep)} values wanted)"
        held = [f"{f'{count} × ' if count > 1 else ''}{name} {shape}" for (name, shape), count in self._by_shape().items()]
        return f"Tape({', '.join(held)})"

    def _repr_html_(self) -> str:
        lines = [[name, str(count), "×".join(map(str, shape))] for (name, shape), count in self._by_shape().items()]
        return html(f"Tape\n{table(lines, ['recorded', 'times', 'shape'], 'lrl')}") if lines else html(repr(self))

    def _by_shape(self) -> dict[tuple[str, tuple[int, ...]], int]:
        """(name with * for the block, shape) → how many."""
        counts: dict[tuple[str, tuple[int, ...]], int] = {}
        for name in self.names():
            key = re.sub(r"\.\d+\.", ".*.", name), tuple(self._values[name].shape)
            counts[key] = counts.get(key, 0) + 1
        return counts

    def attention(self, block: int) -> torch.Tensor:
        """Attention weights of a block, (B, heads, T, T); fewer heads or rows when the tape was told so."""
        if not self.config.is_transformer:
            raise UsageError(f"a {self.config.family} has no attention", "use Grad-CAM, integrated gradients or occlusion")
        depth = self.config.depth
        if not -depth <= block < depth:
            raise out_of_range("block", block, depth)
        return self[f"blocks.{block % depth}.attention.weights"]

    @property
    def logits(self) -> torch.Tensor:
        return self["logits"]

    @property
    def tokens(self) -> torch.Tensor:
        """(B, T, D) after the last norm."""
        return self["tokens"]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches (for a rival: of its last feature map)."""
        if self.config.is_transformer:
            return self.config.grid
        height, width = self[self.model.map_names()[-1]].shape[-2:]
        return height, width

    @property
    def prefix(self) -> int:
        """Number of tokens before the patches."""
        return self.config.prefix if self.config.is_transformer else 0

    @property
    def recorded_heads(self) -> list[int] | None:
        """The heads whose attention weights are kept; None: all."""
        return self._heads

    @property
    def recorded_rows(self) -> list[int] | None:
        """The tokens whose rows of attention are kept; None: all."""
        return self._rows

    @property
    def edits(self) -> dict[str, Edit]:
        """What was changed in this pass, by name."""
        return self._edits

    def gradient(self, name: str, target: int | None = None, item: int | None = None) -> torch.Tensor:
        """Gradient of the target's logit (default: the predicted class) by a recorded value."""
        return self.gradient_of([name], target, item)[0]

    def gradient_of(self, names: Sequence[str], target: int | None = None, item: int | None = None) -> list[torch.Tensor]:
        """The same for several values. One backward pass gives those of everything kept; the last one's are remembered."""
        if not self.gradients:
            raise UsageError("this tape kept no graph", "call vitral.watch(model, x, gradients=True)")
        logits, values = self.logits, {name: self[name] for name in (*names, *self._values)}
        if not logits.requires_grad:
            raise UsageError("gradients are switched off here", "call watch outside torch.no_grad() and torch.inference_mode()")
        if target is not None and not 0 <= target < logits.shape[1]:
            raise out_of_range("class", target, logits.shape[1])
        if self._slopes is None or self._slopes[0] is not logits or self._slopes[1:3] != (target, item):
            chosen = logits.argmax(dim=1) if target is None else torch.full_like(logits[:, 0], target, dtype=torch.long)
            with torch.enable_grad():  # the graph is there, whatever the caller has switched off since
                scores = logits.gather(1, chosen[:, None])[:, 0]  # (B,)
                score = scores.sum() if item is None else scores[item]
            slopes = torch.autograd.grad(score, list(values.values()), retain_graph=True, materialize_grads=True)
            self._slopes = logits, target, item, dict(zip(values, slopes, strict=True))
        return [self._slopes[3][name] for name in names]

    # Inside

    def _match(self, pattern: str) -> list[str]:
        matches = _matching(pattern, self._names)
        if not matches:
            raise one_of("name", pattern, self._names)
        return matches

    def _check(self, what: str, chosen: Any, count: int) -> list[int] | None:
        if chosen is None:
            return None
        chosen = [int(index) for index in chosen]
        if not chosen or any(not -count <= index < count for index in chosen):
            raise UsageError(f"{what}s {chosen} do not exist", f"this model has {what}s 0 to {count - 1}")
        return [index % count for index in chosen]


@functools.cache  # of a few patterns for each depth: a GPU waits for it before every watched pass
def _matching(pattern: str, names: tuple[str, ...]) -> list[str]:
    return fnmatch.filter(names, pattern)


def _in_blocks(name: str, blocks: list[int] | None) -> bool:
    parts = name.split(".")
    return blocks is None or parts[0] != "blocks" or int(parts[1]) in blocks


def _take(value: torch.Tensor, axis: int, chosen: list[int]) -> torch.Tensor:
    """Some heads or rows. Neighbours are a view: numbers in a list would travel to a GPU, and the whole queue wait for them."""
    first = chosen[0]
    if chosen == list(range(first, first + len(chosen))):
        return value.narrow(axis, first, len(chosen))
    return value.index_select(axis, torch.tensor(chosen, device=value.device))
