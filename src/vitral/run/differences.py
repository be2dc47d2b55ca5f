"""Two runs or more side by side: which settings, data, versions, curves and answers differ."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base import layout
from vitral.base.errors import DataError, UsageError
from vitral.base.files import sha256_file
from vitral.base.manifest import read_manifest
from vitral.base.text import NOTHING, counted, table
from vitral.config import to_dict
from vitral.run.answers import agree
from vitral.run.archive import opened
from vitral.run.folder import RunFolder
from vitral.run.survey import row_of

RESULTS = ("accuracy", "sealed", "validation", "linear", "neighbours", "test_neighbours", "epochs", "seconds", "finished")
PASSING = {"compile_seconds", "opened", "notes", "times", "where"}
"""What differs between any two runs and says nothing."""
LONGEST = 40
"""Letters of a value in the table."""
_DEEPEST = 8
"""Objects inside objects that are told apart; what lies deeper is one value."""


@dataclass(frozen=True)
class Differences:
    """Of several runs: lists hold one value a run, in the order of `runs`; the second and later are compared with the first."""

    runs: list[str]
    results: dict[str, list[Any]]
    settings: dict[str, list[Any]]
    data: dict[str, list[Any]]
    versions: dict[str, list[Any]]
    curves: list[dict[str, Any]]
    """For each run after the first: `same`, `first_step` that differs, `largest` distance between the validation accuracies."""
    answers: list[dict[str, Any]]
    """For each run after the first: `images`, `same` answers, right in one `only_first` or the other `only_second`; or `problem`."""
    weights: list[bool]
    """For each run after the first: whether its final weights are the same, bit for bit."""

    @property
    def differ(self) -> bool:
        parts = (self.settings, self.data, self.versions)
        return any(parts) or not all(self.weights) or not all(each["same"] for each in self.curves)

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "differ": self.differ}

    def text(self) -> str:
        rows: list[list[str]] = []
        for title, part in (("result", self.results), ("setting", self.settings), ("data", self.data), ("version", self.versions)):
            rows += [[_shown(f"{title} {name}"), *map(_shown, values)] for name, values in part.items()]
        rows.append(["curves", "", *(_curve(each) for each in self.curves)])
        rows.append(["answers", "", *(_answers(each) for each in self.answers)])
        rows.append(["weights", "", *("the same" if same else "others" for same in self.weights)])
        return table(rows, ["", *self.runs])


def differences(paths: Sequence[str | Path]) -> Differences:
    """What differs between runs, each a folder or a record's archive; what is the same in all of them is left out."""
    if len(paths) < 2:
        raise UsageError("one run has nothing to differ from", "name two or more")
    with contextlib.ExitStack() as stack:
        return _differences([str(Path(path)) for path in paths], [RunFolder.open(stack.enter_context(opened(path))) for path in paths])


def _differences(names: list[str], runs: list[RunFolder]) -> Differences:
    rows = [row_of(run.path) for run in runs]
    if broken := next((row for row in rows if row.problem), None):
        raise DataError(f"{broken.path}: {broken.problem}", "name runs that can be read")
    environments = [run.environment for run in runs]
    data = [environment.pop("data", {}) for environment in environments]
    first, *others = runs
    return Differences(
        names,
        {name: values for name in RESULTS if set(values := [getattr(row, name) for row in rows]) != {None}},
        _differing([to_dict(run.settled) for run in runs]),
        _differing(data),
        _differing(environments),
        [_compare_curves(first, other) for other in others],
        [_compare_answers(first, other) for other in others],
        [_fingerprint(first) == _fingerprint(other) is not None for other in others],
    )


def _differing(values: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    flat = [_flat(value) for value in values]
    names = list(dict.fromkeys(name for each in flat for name in each))
    columns = {name: [each.get(name) for each in flat] for name in names if PASSING.isdisjoint(name.split("."))}
    return {name: column for name, column in columns.items() if any(value != column[0] for value in column)}


def _flat(value: dict[str, Any], before: str = "", depth: int = 0) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, inner in value.items():
        nested = isinstance(inner, dict) and depth < _DEEPEST
        out |= _flat(inner, f"{before}{name}.", depth + 1) if nested else {f"{before}{name}": inner}
    return out


def _compare_curves(first: RunFolder, other: RunFolder) -> dict[str, Any]:
    one, two = (_by_step(run) for run in (first, other))
    shared = [key for key in one if key in two]
    apart = [step for split, step in shared if one[split, step].get("loss") != two[split, step].get("loss")]
    pairs = [[each[key].get("accuracy") for each in (one, two)] for key in shared if key[0] == "validation"]
    gaps = [abs(a - b) for a, b in pairs if a is not None and b is not None]
    return {
        "same": not apart and one.keys() == two.keys(),
        "first_step": min(apart, default=None),
        "largest": max(gaps, default=None),
        "shared_lines": len(shared),
    }


def _by_step(run: RunFolder) -> dict[tuple[str, int], dict[str, Any]]:
    """(split, step) → its line in the journal; the test has one of its own."""
    return {(row["split"], row["step"]): row for row in run.metrics if row.get("split") not in (None, "test") and "step" in row}


def _compare_answers(first: RunFolder, other: RunFolder) -> dict[str, Any]:
    if not (_tested(first) and _tested(other)):
        return {"problem": "not tested"}
    try:
        one, two = first.answers(), other.answers()
    except DataError as error:
        return {"problem": error.message}
    if not np.array_equal(one.labels, two.labels) or (one.paths and two.paths and tuple(one.paths) != tuple(two.paths)):
        return {"problem": "tested on other images"}
    right, also = one.right, two.right
    return {
        "images": len(one.labels),
        "same": int(agree(one.predictions, two.predictions).sum()),
        "only_first": int((right & ~also).sum()),
        "only_second": int((also & ~right).sum()),
    }


def _tested(run: RunFolder) -> bool:
    """A training opens its test images, a pre-training only where it was told to."""
    return run.finished and ("test" in run.settled.opens or (run.path / layout.answers_name()).is_file())


def _fingerprint(run: RunFolder) -> str | None:
    path = run.path / layout.WEIGHTS
    if run.is_record:
        return (read_manifest(run.path) or {}).get("weights")
    return sha256_file(path) if path.is_file() else None


def _curve(each: dict[str, Any]) -> str:
    if each["same"]:
        return "the same"
    if each["first_step"] is None:
        return f"the same on {counted(each['shared_lines'], 'shared line')}" if each["shared_lines"] else "no line of the journal is shared"
    gap = "" if each["largest"] is None else f", up to {100 * each['largest']:.1f} points on validation"
    return f"differ from step {each['first_step']:,}{gap}"


def _answers(each: dict[str, Any]) -> str:
    if "problem" in each:
        return each["problem"]
    return f"{each['same']:,} of {each['images']:,} the same; right in one alone: {each['only_first']:,} / {each['only_second']:,}"


def _shown(value: Any) -> str:
    if value is None:
        return NOTHING
    text = f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
