"""What is in a weights file: its family, what becomes of each key, the config, and what is known or assumed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from vitral.base.errors import WeightsError
from vitral.base.layout import WEIGHTS
from vitral.base.origin import Fact, Origin
from vitral.build import shadow
from vitral.config import ModelConfig, to_dict
from vitral.weights.assemble import from_shapes, make_origin
from vitral.weights.checkpoint import read_description
from vitral.weights.declared import Declared, declare
from vitral.weights.detect import Detected, detect
from vitral.weights.infer import infer_config
from vitral.weights.keymap import Mapped, Row, convert, pattern
from vitral.weights.load import CALLER, has_own_config, read_source


@dataclass(frozen=True)
class _Inspection:
    """Rows for every key; config and origin where the file makes a whole model, else `problem` says why not."""

    path: str
    family: str
    rows: tuple[Row, ...]
    config: ModelConfig | None
    origin: Origin | None
    parameters: int
    notes: tuple[str, ...] = ()
    problem: str = ""
    counts: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "family": self.family,
            "parameters": self.parameters,
            "counts": self.counts,
            "notes": list(self.notes),
            "problem": self.problem,
            "config": to_dict(self.config) if self.config else None,
            "origin": self.origin.to_dict() if self.origin else None,
            "keys": [{"foreign": list(row.foreign), "ours": row.ours, "action": row.action, "shape": list(row.shape)} for row in self.rows],
        }

    def table(self, keys: bool = True) -> str:
        """Everything as text, for a terminal."""
        lines = [f"{self.path}: {self.family}, {self.parameters:,} parameters", *self.notes]
        lines.append("keys: " + ", ".join(f"{count} {action}" for action, count in self.counts.items()))
        if self.problem:
            lines.append(f"problem: {self.problem}")
        if self.config:
            lines.append("config: " + ", ".join(f"{name} {value}" for name, value in _telling(self.config).items()))
        if self.origin:
            lines += [
                f"  {name:<13} {_shown(fact.value):<40} {fact.mark}{': ' + fact.note if fact.note else ''}"
                for name, fact in _facts(self.origin).items()
            ]
        if keys:
            lines += [f"  {row.action:<8} {_joined(row.foreign):<60} → {row.ours or '(not used)'} {_by(row.shape)}" for row in self.rows]
        return "\n".join(lines)


def inspect(path: str | Path, heads: int | None = None) -> _Inspection:
    """Look into a file or folder without building the model; raises only where there is nothing to show."""
    path = Path(path)
    contents, from_library = read_source(path)
    detected = detect(contents.tensors, path.name)
    declared = declare(CALLER, {"heads": heads}).or_else(from_library).or_else(from_shapes(detected))
    folder = path.parent if path.name == WEIGHTS else path
    stored = read_description(folder) if folder.is_dir() and has_own_config(folder) else None
    return _inspected(path, detected, declared, contents.notes, stored)


def _inspected(
    path: Path, detected: Detected, declared: Declared, notes: tuple[str, ...], stored: tuple[ModelConfig, Origin] | None = None
) -> _Inspection:
    """`stored`: what a folder of ours says of its model, so that nothing is inferred."""
    config, origin, problem = None, None, ""
    mapped = Mapped()
    unknown = _unknown(detected)
    tensors = {name: tensor for name, tensor in detected.tensors.items() if name not in unknown}
    try:
        mapped = convert(detected.family.table, tensors, path.name)
        if stored is not None:
            config, origin = stored
        else:
            config, facts = infer_config(mapped.tensors, detected.family, declared, path.name)
            origin = make_origin(f"{detected.family.label}: {path.name}", detected, config, facts, declared)
    except WeightsError as error:
        problem = str(error)
    rows = mapped.rows + [Row((name,), None, "unknown", tuple(detected.tensors[name].shape)) for name in unknown]
    if config is not None and config.depth <= len(mapped.tensors):
        rows += _missing(config, mapped.tensors)
    counts = Counter(row.action for row in rows)
    wrong = [f"{counts[action]} keys {action}" for action in ("unknown", "missing") if counts[action]]
    wrong += [f"NaN or infinity in {name}" for name, tensor in mapped.tensors.items() if not tensor.isfinite().all()][:1]
    problem = problem or "; ".join(wrong)
    parameters = sum(tensor.numel() for tensor in mapped.tensors.values())
    return _Inspection(
        str(path), detected.family.label, tuple(rows), config, origin, parameters, (*notes, *detected.notes), problem, dict(counts)
    )


def _unknown(detected: Detected) -> list[str]:
    patterns = [pattern(part) for foreign in detected.family.table for part in ([foreign] if isinstance(foreign, str) else foreign)]
    return [name for name in detected.tensors if not any(regex.fullmatch(name) for regex in patterns)]


def _missing(config: ModelConfig, tensors: dict[str, Tensor]) -> list[Row]:
    expected = shadow(config).state_dict()
    return [Row((), name, "missing", tuple(tensor.shape)) for name, tensor in expected.items() if name not in tensors]


def _facts(origin: Origin) -> dict[str, Fact[Any]]:
    return {name: fact for name, fact in vars(origin).items() if isinstance(fact, Fact) and name != "source"}


def _telling(config: ModelConfig) -> dict[str, Any]:
    """The config's fields that differ from the defaults, and the sizes always."""
    sizes = ("image_size", "patch_size", "width", "depth", "heads", "mlp_width", "classes")
    default, values = to_dict(ModelConfig()), to_dict(config)
    return {name: value for name, value in values.items() if name in sizes or value != default[name]}


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > 3:
        return f"{value[0]}, {value[1]}, … ({len(value)})"
    return str(value) if value != () else "unnamed"


def _joined(names: tuple[str, ...]) -> str:
    return " + ".join(names) if names else "(nothing)"


def _by(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
