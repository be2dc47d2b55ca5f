"""The lens: the head read before the end. What would the model say if it stopped after block 4, and what does it call this patch there?

Plain (nostalgebraist's logit lens): the last norm and the head applied to the tokens after every block, as they are.
Trained (after Belrose and others' tuned lens, 2023): a linear map per block first takes the tokens to where they will be after the last
block. It is solved, not learnt: least squares on the features of some data, pulled towards the plain lens where the data says little.
L blocks, T tokens, D numbers per token, K classes, h×w patches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save as to_bytes

from vitral.base.errors import UsageError, WeightsError
from vitral.base.files import write_atomic
from vitral.base.numbers import to_double, to_numpy
from vitral.base.picture import Picture
from vitral.draw.lens import lens_figure
from vitral.draw.result import Result
from vitral.look.choice import Start, check_item, find_target, need_transformer, unused_note
from vitral.look.describe import digest, seen
from vitral.look.rerun import ensure_recorded
from vitral.model.classifier import Classifier, evaluating
from vitral.model.head import probabilities
from vitral.model.tape import Tape
from vitral.weights.read import read_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RIDGE = 0.01
"""Strength of the pull towards the plain lens, as a share of the tokens' mean variance."""


@dataclass(frozen=True)
class Lens(Result):
    """What the head says at every depth: of the picture as a whole, and of each patch."""

    logits: np.ndarray
    """(L + 1, K): of what the head reads, after the embedding and after each block."""
    patches: np.ndarray
    """(L + 1, h, w, K): of each patch, as if it stood where the head reads."""
    target: int
    class_names: tuple[str, ...]
    trained: bool = False
    multi_label: bool = False
    """Each class on its own: a picture may have several labels."""
    picture: Picture | None = None
    note: str = ""

    @property
    def unit(self) -> str:
        """What `probabilities` holds: of a model with one output it is that output."""
        return "output" if len(self.class_names) == 1 and not self.multi_label else "probability"

    @property
    def probabilities(self) -> np.ndarray:
        """(L + 1, K)"""
        return self._shares(self.logits)

    @property
    def patch_probabilities(self) -> np.ndarray:
        """(L + 1, h, w, K)"""
        return self._shares(self.patches)

    @property
    def answers(self) -> np.ndarray:
        """(L + 1,): the most probable class at each depth."""
        return self.logits.argmax(axis=-1)

    @property
    def decided_at(self) -> int:
        """The depth (0: the embedding, b + 1: block b) from which on the most probable class stays what it is at the end."""
        wrong = np.flatnonzero(self.answers != self.answers[-1])
        return int(wrong[-1]) + 1 if len(wrong) else 0

    def numbers(self) -> dict[str, Any]:
        top = np.argsort(-self.patches, axis=-1)[..., 0]
        shares = np.take_along_axis(self.patch_probabilities, top[..., None], axis=-1)[..., 0]
        return {
            "logits": self.logits,
            "patch_answers": top,
            "patch_confidence": shares,
            "patch_target": self.patch_probabilities[..., self.target],
            "target": self.target,
        }

    def to_dict(self, top: int = 5) -> dict[str, Any]:
        """Plain values: the most probable classes at each depth."""
        rows = []
        for depth, shares in enumerate(self.probabilities):
            ranked = np.argsort(-shares)[:top]
            classes = [{"class": self.class_names[index], self.unit: float(shares[index])} for index in ranked]
            rows.append({"after": _depth_name(depth), "classes": classes})
        decided_at = {} if self.unit == "output" else {"settled": _depth_name(self.decided_at)}
        return {"target": self.class_names[self.target], "trained": self.trained, **decided_at, "blocks": rows}

    def draw(self) -> Figure:
        kind = "trained lens" if self.trained else "lens"
        end = f"{self.class_names[self.answers[-1]]}, settled after {_depth_name(self.decided_at)}"
        end = f"output {self.logits[-1, 0]:.3g}" if self.unit == "output" else end
        original = None if self.picture is None else seen(self.picture)
        options = {"title": f"The {kind}: {end}", "original": original, "unit": self.unit, "multi_label": self.multi_label}
        return lens_figure(self.probabilities, self.patch_probabilities, self.class_names, self.target, **options)

    def _shares(self, logits: np.ndarray) -> np.ndarray:
        return logits if self.unit == "output" else to_numpy(probabilities(torch.from_numpy(logits), self.multi_label))


@dataclass(frozen=True)
class TrainedLens:
    """A linear map for each block and kind of token (0: prefix tokens, 1: patches), as what is to be added to the tokens."""

    weight: torch.Tensor
    """(L + 1, 2, D, D)"""
    bias: torch.Tensor
    """(L + 1, 2, D)"""
    facts: dict[str, Any]
    """The model's digest, the data, the number of images, how often the answer at each depth is the final one: plain and trained."""

    def __call__(self, tokens: torch.Tensor, depth: int, prefix: int) -> torch.Tensor:
        """Tokens (B, T, D) after `depth` as they will be after the last block."""
        weight, bias = self.weight[depth].to(tokens), self.bias[depth].to(tokens)
        moved = [part + part @ weight[kind] + bias[kind] for kind, part in enumerate((tokens[:, :prefix], tokens[:, prefix:]))]
        return torch.cat(moved, dim=1)

    def check(self, model: Classifier) -> None:
        if self.facts.get("model") != digest(model):
            raise UsageError("this lens was fitted for other weights", "fit one for this model with --fit DATA")

    def save(self, path: str | Path) -> Path:
        tensors = {"weight": self.weight.float().contiguous(), "bias": self.bias.float().contiguous()}
        tensors["facts"] = torch.frombuffer(bytearray(json.dumps(self.facts).encode()), dtype=torch.uint8).clone()
        return write_atomic(path, to_bytes(tensors, metadata={"format": "vitral lens"}))

    @classmethod
    def read(cls, path: str | Path) -> TrainedLens:
        held = read_weights(path).tensors
        try:
            facts = json.loads(bytes(held["facts"].tolist()))
            trained = cls(held["weight"].clone(), held["bias"].clone(), facts)
            sound = isinstance(facts, dict) and trained.weight.ndim == 4 and trained.bias.shape == trained.weight.shape[:-1]
        except (KeyError, ValueError, TypeError):
            sound = False
        if not sound:
            raise WeightsError(f"{path} holds no trained lens", "name a file that `vitral lens … --fit DATA` wrote")
        return trained


def lens(tape: Tape, item: int = 0, target: int | str | None = None, start: Start = "class", *, trained: TrainedLens | None = None) -> Lens:
    """What the head says after the embedding and after each block; the last is the model's own answer."""
    need_transformer(tape, "the lens")
    names, item = depth_names(tape.model), check_item(tape, item)
    target = find_target(tape, item, target)
    if trained is not None:
        trained.check(tape.model)
    used, at = ensure_recorded(tape, item, names)
    prefix, last = used.prefix, len(names) - 1
    logits, patches = [], []
    with torch.no_grad(), evaluating(used.model):
        for depth, name in enumerate(names):
            tokens = used[name][at : at + 1].detach()  # (1, T, D)
            if trained is not None and depth < last:
                tokens = trained(tokens, depth, prefix)
            logits.append(read_out(used.model, tokens)[0])
            patches.append(read_out(used.model, tokens[0, prefix:, None].expand(-1, prefix + 1, -1)))
    picture = used.pictures[at] if used.pictures else None
    every = to_numpy(to_double(torch.stack(patches))).reshape(len(names), *used.grid, -1)
    class_names = tuple(map(tape.origin.class_name, range(tape.config.classes)))
    whole = to_numpy(to_double(torch.stack(logits)))
    return Lens(whole, every, target, class_names, trained is not None, tape.origin.multi_label, picture, unused_note("lens", start=start))


def depth_names(model: Classifier) -> list[str]:
    """Where a tape keeps the tokens: after the embedding, after each block."""
    return ["embedding", *model.map_names()]


def read_out(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Logits (B, K) from tokens (B, T, D) before the last norm, by the model's own norm, pooling and head.

    One patch is read by standing in every place at once: whatever the head reads, it reads this patch.
    """
    tokens = model.norm(tokens)
    logits = model.head(model.pool_norm(model.read(tokens)))
    return logits if model.distillation_head is None else (logits + model.distillation_head(tokens[:, 1])) / 2


def fit_lens(model: Classifier, batches: Iterable[torch.Tensor], data: str = "") -> TrainedLens:
    """The linear maps that best take the tokens of these images (B, C, H, W) after each block to those after the last one."""
    need_transformer(model, "the lens")
    names, prefix, width = depth_names(model), model.config.prefix, model.config.width
    last = len(names) - 1
    square = torch.zeros(last, 2, width + 1, width + 1, dtype=torch.float64)  # host
    cross = torch.zeros(last, 2, width + 1, width, dtype=torch.float64)  # host
    counts, held = torch.zeros(2), []
    parameter = next(model.parameters())
    with torch.no_grad(), evaluating(model):
        for number, images in enumerate(batches):
            tape = Tape(model, keep=names)
            model(images.to(parameter.device, parameter.dtype), tape=tape)
            if number % 5 == 4:  # a fifth is kept to judge by
                held.append([tape[name].cpu() for name in names])
                continue
            end = to_double(tape[names[-1]])
            for kind, part in enumerate((slice(0, prefix), slice(prefix, None))):
                goal = end[:, part].reshape(-1, width)
                counts[kind] += len(goal)
                for depth in range(last):
                    tokens = to_double(tape[names[depth]])[:, part].reshape(-1, width)
                    beside = torch.cat([tokens, torch.ones(len(tokens), 1, dtype=torch.float64)], dim=1)  # host
                    square[depth, kind] += beside.T @ beside
                    cross[depth, kind] += beside.T @ (goal - tokens)
    if not counts.any():
        raise UsageError("a lens cannot be fitted on no images", "give some data")
    weight, bias = torch.zeros(last, 2, width, width), torch.zeros(last, 2, width)
    for depth in range(last):
        for kind in range(2):
            if not counts[kind]:
                continue
            pull = _RIDGE * square[depth, kind].diagonal()[:-1].mean().clamp_min(1e-12)
            strength = torch.full((width + 1,), float(pull), dtype=torch.float64)  # host
            strength[-1] = 1e-9 * float(counts[kind])  # the bias is free
            solved = torch.linalg.solve(square[depth, kind] + torch.diag(strength), cross[depth, kind])
            weight[depth, kind], bias[depth, kind] = solved[:-1].float(), solved[-1].float()
    trained = TrainedLens(weight, bias, {"model": digest(model), "data": data, "tokens": [int(count) for count in counts]})
    return TrainedLens(weight, bias, {**trained.facts, **_agreement(model, trained, held)})


@torch.no_grad()
def _agreement(model: Classifier, trained: TrainedLens, held: list[list[torch.Tensor]]) -> dict[str, Any]:
    """On the images that were kept apart: how often the answer at each depth is the final one."""
    if not held or not model.config.classes:
        return {}
    parameter, prefix = next(model.parameters()), model.config.prefix
    rates: dict[str, list[float]] = {"plain": [], "trained": []}
    with evaluating(model):
        depths = [torch.cat(parts).to(parameter.device, parameter.dtype) for parts in zip(*held, strict=True)]
        end = read_out(model, depths[-1]).argmax(dim=1)
        for depth, tokens in enumerate(depths[:-1]):
            for name, value in (("plain", tokens), ("trained", trained(tokens, depth, prefix))):
                rates[name].append(float((read_out(model, value).argmax(dim=1) == end).float().mean()))
    return {"agreement": rates, "judged_on": len(end)}


def _depth_name(depth: int) -> str:
    return "the embedding" if depth == 0 else f"block {depth - 1}"
