"""What happens in one cell: train, and say what came out. Tuning cells never open the test split."""

from __future__ import annotations

import dataclasses
import gc
import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from vitral.base.device import pick_device, using_threads
from vitral.base.errors import DataError
from vitral.base.files import make_folder
from vitral.base.layout import STATE
from vitral.cost.memory import PeakMemory
from vitral.data.loader import even_batches
from vitral.model.classifier import Classifier
from vitral.run.folder import RunFolder
from vitral.study.fight.protocol import Cell, fingerprint
from vitral.study.fight.table import Outcome
from vitral.study.probe_run import probe_few, probe_in_place
from vitral.train.fit import fit


def train_cell(plain: dict[str, Any], folder: str) -> dict[str, Any]:
    """Train the cell in its folder, or go on with it; its Outcome as plain values."""
    cell, path = Cell.from_dict(plain), Path(folder)
    peak = PeakMemory(pick_device(cell.run.train.device))
    if cell.shots:
        model, metrics = few_shots(cell, path)
    else:
        start = {"weights": str(beginning(cell, path))} if cell.begun else {}
        run = fit(dataclasses.replace(cell.run, **start), out=path, resume=RunFolder(path).exists, quiet=True)
        model, metrics = probe_cell(cell, run.metrics, path) if cell.probed else (run.model, run.metrics)
        del run
    outcome = describe(cell, metrics, sum(parameter.numel() for parameter in model.parameters()), peak.bytes())
    shutil.rmtree(path / STATE, ignore_errors=True)  # a finished run needs no checkpoint to go on from
    del model
    _tidy()
    return dataclasses.asdict(outcome)


def beginning(cell: Cell, path: Path) -> Path:
    """The finished cell whose weights it starts from; it is named as seen from among the cells, so that a study can be moved."""
    return Path(os.path.normpath(path.parent / cell.begun))


def few_shots(cell: Cell, path: Path) -> tuple[Classifier, list[dict[str, Any]]]:
    """The weights it starts from with a linear probe of a few images for their head, and the journal as if that had been a run."""
    began, classes = time.perf_counter(), cell.run.model.classes
    few = dataclasses.replace(cell.run.data, subset=float(cell.shots * classes), subset_seed=cell.seed)
    with using_threads(cell.run.train.threads):
        model, judged = probe_few(RunFolder(make_folder(path)), beginning(cell, path), few, device=cell.run.train.device)
    spent = {"step": 0, "seconds": time.perf_counter() - began}
    return model, [{"split": split, "accuracy": scored.top1, "loss": scored.loss, **spent} for split, scored in judged.items()]


def probe_cell(cell: Cell, metrics: list[dict[str, Any]], path: Path) -> tuple[Classifier, list[dict[str, Any]]]:
    """The model with a linear probe for its head, and the journal as if that had been judged; a final cell's folder gets its answers."""
    folder = RunFolder.open(path)
    with using_threads(cell.run.train.threads):
        model, judged = probe_in_place(folder, test=cell.role == "final", device=cell.run.train.device)
    spent = {name: metrics[-1][name] for name in ("step", "seconds")}
    lines = [{"split": split, "accuracy": scored.top1, "loss": scored.loss, **spent} for split, scored in judged.items()]
    return model, [line for line in metrics if line["split"] == "train"] + lines


def describe(cell: Cell, metrics: list[dict[str, Any]], parameters: int, memory: int) -> Outcome:
    """The outcome that a run's journal tells."""
    by_split = {line["split"]: line for line in metrics}
    last, judged = metrics[-1], by_split.get("validation")
    if cell.role == "tune" and (judged is None or "test" in by_split):
        raise DataError(
            f"tuning cell {cell.name} {'opened the test split' if judged else 'has no validation pictures'}", "tune on validation"
        )
    shown = by_split["test"] if cell.role == "final" else by_split["validation"]
    samples = int(last["step"]) * even_batches(cell.size, cell.run.train.batch_size)[1]
    return Outcome(
        cell=cell.name,
        model=cell.contender,
        seed=cell.seed,
        lr=cell.lr,
        accuracy=float(shown["accuracy"]),
        loss=float(shown["loss"]),
        validation=float(judged["accuracy"]) if judged else float("nan"),
        parameters=parameters,
        flops=cell.flops,
        training_flops=cell.training_flops * samples,
        samples=samples,
        seconds=float(last["seconds"]),
        memory=memory,
        split=fingerprint(cell.run.data),
        role=cell.role,
        size=cell.size,
        share=cell.share,
        pretrained=cell.pretrained,
        shots=cell.shots,
    )


def _tidy() -> None:
    """Leave a GPU process as fresh as the next cell expects it: no old weights on the device, no graphs of old models."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
        torch.compiler.reset()
