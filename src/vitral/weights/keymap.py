"""Applies a rule table to a state dict: nothing lost, nothing left.

A table is a literal dict, foreign name → our name:

    "blocks.{i}.norm1.{p}": "blocks.{i}.norm1.{p}"             the same tensor under another name
    "proj": ("head.linear.weight", "transposed")               the same numbers in another shape
    ("…query.{p}", "…key.{p}", "…value.{p}"): "…qkv.{p}"       several tensors stacked into one
    "decoder_{rest}": None                                     dropped on purpose

`{i}` is a block number, `{p}` weight or bias, `{rest}` anything. A foreign key without a rule, a parameter of ours
filled twice, and a stack with a part missing are errors that list the keys. Every operation can be undone, so the
same table writes the foreign format; where several rules give one parameter of ours, the first is the one written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vitral.base.errors import WeightsError
from vitral.base.text import counted

_Target = str | tuple[str, str] | None
Table = Mapping[str | tuple[str, ...], _Target]

OTHER_FORMATS = "save it in Vitral's own format, or export it to onnx"
"""The two that hold every model."""
GROUPS = {"{i}": r"(?P<i>\d+)", "{p}": r"(?P<p>weight|bias)", "{rest}": r"(?P<rest>.+)"}


@dataclass(frozen=True)
class _Operation:
    """One change of shape, and its inverse."""

    forward: Callable[[list[Tensor]], Tensor]
    """The foreign parts → our tensor."""
    backward: Callable[[Tensor, int, int], list[Tensor]]
    """(our tensor, number of parts, attention heads) → the foreign parts."""


def _stack(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, dim=0) if len(parts) > 1 else parts[0]


def _unstack(tensor: Tensor, count: int) -> list[Tensor]:
    return [part.contiguous() for part in tensor.chunk(count, dim=0)] if count > 1 else [tensor]


def _without_keys(tensor: Tensor) -> list[Tensor]:
    query, key, value = tensor.chunk(3)
    if key.any():
        raise WeightsError("the format has no place for a bias of the keys", OTHER_FORMATS)
    return [query.contiguous(), value.contiguous()]


OPERATIONS: dict[str, _Operation] = {
    "same": _Operation(_stack, lambda t, count, _: _unstack(t, count)),
    # (D,) ↔ (1, 1, D)
    "token": _Operation(lambda p: p[0].reshape(1, 1, -1), lambda t, *_: [t.reshape(-1)]),
    # (N, D) ↔ (1, N, D)
    "batched": _Operation(lambda p: p[0].unsqueeze(0), lambda t, *_: [t.squeeze(0)]),
    "transposed": _Operation(lambda p: p[0].T.contiguous(), lambda t, *_: [t.T.contiguous()]),
    # (H, W, C, D) ↔ (D, C, H, W)
    "channels last": _Operation(lambda p: p[0].permute(3, 2, 0, 1).contiguous(), lambda t, *_: [t.permute(2, 3, 1, 0).contiguous()]),
    # (D, heads, d) each ↔ (parts·D, D)
    "heads in": _Operation(
        lambda p: torch.cat([part.flatten(1).T for part in p]).contiguous(),
        lambda t, count, heads: [part.T.reshape(part.shape[1], heads, -1).contiguous() for part in t.chunk(count)],
    ),
    # (heads, d) each ↔ (parts·D,)
    "heads bias": _Operation(
        lambda p: torch.cat([part.flatten() for part in p]),
        lambda t, count, heads: [part.reshape(heads, -1).contiguous() for part in t.chunk(count)],
    ),
    # (D,) of queries and of values ↔ (3·D,): keys without a bias are keys with a bias of zero
    "without keys": _Operation(lambda p: torch.cat([p[0], torch.zeros_like(p[0]), p[1]]), lambda t, *_: _without_keys(t)),
    # (heads, d, D) ↔ (D, D)
    "heads out": _Operation(
        lambda p: p[0].flatten(0, 1).T.contiguous(), lambda t, _, heads: [t.T.reshape(heads, -1, t.shape[0]).contiguous()]
    ),
}


@dataclass(frozen=True)
class Row:
    """What became of one rule's keys."""

    foreign: tuple[str, ...]
    ours: str | None
    action: str
    """mapped, reshaped, joined, dropped; for our own parameters without a source: missing."""
    shape: tuple[int, ...]


@dataclass
class Mapped:
    """Our tensors, and how each came to be."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class _Rule:
    templates: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    ours: str | None
    operation: str


def pattern(template: str) -> re.Pattern[str]:
    """The regular expression of a name with `{i}`, `{p}`, `{rest}`."""
    pieces = re.split(r"(\{i\}|\{p\}|\{rest\})", template)
    return re.compile("".join(GROUPS.get(piece, re.escape(piece)) for piece in pieces))


def _rules(table: Table) -> list[_Rule]:
    rules = []
    for foreign, target in table.items():
        templates = (foreign,) if isinstance(foreign, str) else tuple(foreign)
        ours, operation = target if isinstance(target, tuple) else (target, "same")
        rules.append(_Rule(templates, tuple(map(pattern, templates)), ours, operation))
    return rules


def _fill(template: str, groups: Mapping[str, str]) -> str:
    for name, value in groups.items():
        template = template.replace("{" + name + "}", value)
    return template


def convert(table: Table, tensors: Mapping[str, Tensor], source: str = "the file") -> Mapped:
    """Our tensors from foreign ones. Raises with the list of keys that are unknown, incomplete or twice filled."""
    rules, mapped = _rules(table), Mapped()
    groups: dict[tuple[int, str], dict[int, str]] = {}
    unknown: list[str] = []
    for key in tensors:
        for number, rule in enumerate(rules):
            matches = [(part, match) for part, regex in enumerate(rule.patterns) if (match := regex.fullmatch(key))]
            if matches:
                part, match = matches[0]
                name = key if rule.ours is None else _fill(rule.ours, match.groupdict())
                groups.setdefault((number, name), {})[part] = key
                break
        else:
            unknown.append(key)
    if unknown:
        raise WeightsError(
            f"{source} has {counted(len(unknown), 'key')} without a place in a ViT",
            f"{listed(unknown)}; `vitral weights inspect` shows them all",
        )
    for (number, name), parts in groups.items():
        rule, keys = rules[number], tuple(parts[part] for part in sorted(parts))
        if rule.ours is None:
            mapped.rows.append(Row(keys, None, "dropped", tuple(tensors[keys[0]].shape)))
            continue
        if len(parts) != len(rule.templates):
            raise WeightsError(f"{source} has only {len(parts)} of the {len(rule.templates)} parts of {name}", f"found {listed(keys)}")
        if name in mapped.tensors:
            other = next(row.foreign for row in mapped.rows if row.ours == name)
            raise WeightsError(f"{source} fills {name} twice", f"by {listed(other)} and by {listed(keys)}: remove one")
        mapped.tensors[name] = _apply(rule, keys, tensors, source)
        action = "joined" if len(keys) > 1 else "mapped" if rule.operation == "same" else "reshaped"
        mapped.rows.append(Row(keys, name, action, tuple(mapped.tensors[name].shape)))
    return mapped


def _apply(rule: _Rule, keys: tuple[str, ...], tensors: Mapping[str, Tensor], source: str) -> Tensor:
    parts = [tensors[key] for key in keys]
    if bad := next(
        (key for key, part in zip(keys, parts, strict=True) if not (part.is_floating_point() or key.endswith("num_batches_tracked"))), None
    ):
        raise WeightsError(
            f"{bad} in {source} holds {tensors[bad].dtype}, not floating-point numbers",
            "quantised weights are not read; use the original ones",
        )
    try:
        return OPERATIONS[rule.operation].forward(parts)
    except (RuntimeError, IndexError) as error:
        shapes = ", ".join(f"{key} {tuple(tensors[key].shape)}" for key in keys)
        raise WeightsError(
            f"{source}: the shapes of {shapes} do not fit {rule.ours}", "the file is damaged or of another family"
        ) from error


def check(mapped: Mapped, expected: Mapping[str, Tensor], source: str = "the file") -> None:
    """Each of our parameters filled exactly once, in its shape."""
    if missing := sorted(set(expected) - set(mapped.tensors)):
        raise WeightsError(f"{source} lacks {counted(len(missing), 'parameter')} of the model", listed(missing))
    if extra := sorted(set(mapped.tensors) - set(expected)):
        raise WeightsError(f"{source} has {counted(len(extra), 'parameter')} that the model does not have", listed(extra))
    wrong = [
        f"{name} is {_by(mapped.tensors[name])}, not {_by(tensor)}"
        for name, tensor in expected.items()
        if mapped.tensors[name].shape != tensor.shape
    ]
    if wrong:
        raise WeightsError(f"{source} has {counted(len(wrong), 'tensor')} of a wrong shape", listed(wrong))


def revert(table: Table, tensors: Mapping[str, Tensor], heads: int, target: str) -> dict[str, Tensor]:
    """Foreign tensors from ours: each rule backwards. A parameter without a rule cannot be held by the format."""
    rules = [(rule, pattern(rule.ours)) for rule in _rules(table) if rule.ours is not None]
    out: dict[str, Tensor] = {}
    homeless: list[str] = []
    for name, tensor in tensors.items():
        for rule, regex in rules:
            if match := regex.fullmatch(name):
                parts = OPERATIONS[rule.operation].backward(tensor, len(rule.templates), heads)
                out.update({_fill(t, match.groupdict()): part for t, part in zip(rule.templates, parts, strict=True)})
                break
        else:
            homeless.append(name)
    if homeless:
        raise WeightsError(f"{target} has no place for {listed(homeless)}", OTHER_FORMATS)
    return out


def listed(names: Iterable[str], limit: int = 8) -> str:
    names = list(names)
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _by(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a single number"
