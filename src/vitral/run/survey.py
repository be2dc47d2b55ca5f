"""What lies in a folder of runs: each as one row, and what can be cleared away."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vitral.base import layout
from vitral.base.errors import DataError, MissingError, VitralError
from vitral.base.files import read_json, writing
from vitral.base.text import NOTHING, byte_size, duration, percent, table
from vitral.config import RunConfig
from vitral.run.folder import RunFolder

_Order = Literal["accuracy", "name", "time", "date"]
_SOME = ("method", "mean average precision", "linear probe", "neighbours", "neighbours, test")
"""What only pre-trainings have, or runs on several labels a picture."""
_ALIGNED = {
    "run": "l",
    "data": "l",
    "model": "l",
    "method": "l",
    "test": "r",
    "mean average precision": "r",
    "validation": "r",
    "linear probe": "r",
    "neighbours": "r",
    "neighbours, test": "r",
    "epochs": "r",
    "time": "r",
    "": "l",
    "state/": "r",
}
"""The columns of the table, and to which side each is set."""


@dataclass(frozen=True)
class Row:
    name: str
    path: str
    data: str = NOTHING
    model: str = NOTHING
    method: str | None = None
    """By which it learnt without labels; None: it learnt with them."""
    accuracy: float | None = None
    """On the test split, of a pre-training its linear probe's; of a run that has not got there: None."""
    mean_average_precision: float | None = None
    """On the test split, of a run on several labels a picture, whose accuracy is how often the first answer is one of them."""
    sealed: float | None = None
    """On the sealed pictures, of a run with stage = confirm."""
    validation: float | None = None
    """The last one."""
    linear: float | None = None
    """On validation, the linear probe of a pre-training."""
    neighbours: float | None = None
    """On validation, the nearest neighbours by its features."""
    test_neighbours: float | None = None
    """The same on the test split, where it was opened."""
    epochs: float = 0.0
    """Done."""
    epochs_asked: float | None = None
    """None: as many as its seconds allow."""
    seconds: float | None = None
    """Of training."""
    finished: bool = False
    state_bytes: int = 0
    """What a stopped run goes on from; a finished one does not need it."""
    changed: float = 0.0
    """When its journal was last written to, in seconds since 1970."""
    problem: str = ""
    """Why it cannot be read."""


def survey(folder: str | Path = layout.RUNS, order: _Order = "accuracy") -> list[Row]:
    """The runs in a folder, or the one that it is; best first, or by name, by training time, by date."""
    folder = Path(folder)
    if not folder.is_dir():
        raise MissingError(f"{folder} is no folder", "name a folder of runs; `vitral train digits` makes runs/")
    paths = [folder] if RunFolder(folder).exists else sorted(path for path in folder.iterdir() if RunFolder(path).exists)
    keys: dict[str, Any] = {
        "accuracy": lambda row: (row.accuracy is None, -(row.accuracy or 0.0), -(row.validation or row.linear or 0.0)),
        "name": lambda row: row.name,
        "time": lambda row: (row.seconds is None, row.seconds or 0.0),
        "date": lambda row: -row.changed,
    }
    return sorted(map(row_of, paths), key=keys[order])


def row_of(path: Path) -> Row:
    """One run; a damaged one says what is wrong instead of keeping the others from being listed."""
    run = RunFolder(path)
    row = Row(path.name, str(path), state_bytes=_size(path / layout.STATE))
    try:
        run.refuse_links()
        settled, metrics = run.settled, run.metrics
        last = {line.get("split"): line for line in metrics}
        journal = path / layout.METRICS
        row = dataclasses.replace(
            row,
            data=settled.data.name,
            model=_model_name(settled),
            accuracy=last["test"].get("accuracy") if run.finished and "test" in last else None,
            mean_average_precision=last["test"].get("mean_average_precision") if run.finished and "test" in last else None,
            sealed=last["sealed"].get("accuracy") if run.finished and "sealed" in last else None,
            validation=last["validation"].get("accuracy") if "validation" in last else None,
            epochs=metrics[-1].get("epoch", 0.0) if metrics else 0.0,
            epochs_asked=settled.train.epochs if settled.train.ends_by_steps else None,
            seconds=metrics[-1].get("seconds") if metrics else None,
            finished=run.finished,
            changed=journal.stat().st_mtime if journal.is_file() else 0.0,
        )
        return row if settled.pretrain is None else _with_probes(row, settled.pretrain.method)
    except VitralError as error:
        return dataclasses.replace(row, problem=str(error))


def _with_probes(row: Row, method: str) -> Row:
    """A pre-training has no accuracy in its journal: what its features are worth was found when it was over, and stands in files."""
    return dataclasses.replace(
        row,
        method=method,
        accuracy=_stored(row, layout.scores_name(), "top1"),
        linear=_stored(row, layout.PROBE, "linear", "accuracy"),
        neighbours=_stored(row, layout.PROBE, "neighbours", "accuracy"),
        test_neighbours=_stored(row, layout.scores_name(layout.NEIGHBOURS), "top1"),
    )


def _stored(row: Row, file: str, *names: str) -> float | None:
    """An accuracy in a file of the run; None: there is no such file."""
    path = Path(row.path) / file
    if not path.is_file():
        return None
    value = read_json(path)
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise DataError(f"{path} has no {' '.join(names)} between 0 and 1", "it is damaged: remove it")
    return value


def _model_name(settled: RunConfig) -> str:
    """`vit 192×12/16`: width × depth / patch; and where its weights are from."""
    model = settled.model
    name = f"{model.family} {model.width}×{model.depth}/{model.patch_size[0]}" if model.is_transformer else model.family
    return f"{name} from {Path(settled.weights).name}" if settled.weights else name


def as_table(rows: Sequence[Row]) -> str:
    """What only some runs have is left out where there is none of it."""
    cells = [_cells(row) for row in rows]
    shown = [name for name in _ALIGNED if name not in _SOME or any(each.get(name, NOTHING) != NOTHING for each in cells)]
    align = "".join(_ALIGNED[name] for name in shown)
    return table([[each.get(name, "") for name in shown] for each in cells], shown, align)


def _cells(row: Row) -> dict[str, str]:
    if row.problem:
        return {"run": row.name, "data": row.problem, "state/": byte_size(row.state_bytes)}
    short = row.epochs_asked is not None and row.epochs < row.epochs_asked
    return {
        "run": row.name,
        "data": row.data,
        "model": row.model,
        "method": row.method or NOTHING,
        "test": percent(row.accuracy),
        "mean average precision": percent(row.mean_average_precision),
        "validation": percent(row.validation),
        "linear probe": percent(row.linear),
        "neighbours": percent(row.neighbours),
        "neighbours, test": percent(row.test_neighbours),
        "epochs": f"{row.epochs:g} of {row.epochs_asked:g}" if short else f"{row.epochs:g}",
        "time": duration(row.seconds),
        "": "finished" if row.finished else "not finished",
        "state/": byte_size(row.state_bytes),
    }


def cleanable(rows: Sequence[Row]) -> list[Row]:
    """Finished runs that still hold what only a stopped one needs."""
    return [row for row in rows if row.finished and row.state_bytes]


def remove_states(rows: Sequence[Row]) -> int:
    """Remove `state/` of finished runs; returns the bytes that are free now. A run that is being written to is refused."""
    freed = 0
    for row in cleanable(rows):
        run = RunFolder(row.path).claim()
        try:
            with writing(run.path / layout.STATE):
                shutil.rmtree(run.path / layout.STATE)
            freed += row.state_bytes
        finally:
            run.close()
    return freed


def _size(folder: Path) -> int:
    """Of what lies in it; a link is what it leads to, and not this run's."""
    files = [] if folder.is_symlink() else folder.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())
