"""Every file name of a run and of a study, in one place.

runs/NAME/           what `vitral train` leaves; opened with `vitral.run.folder.RunFolder`
runs/compare-DATA/   what `vitral compare` leaves, and `vitral scale` beside it; the cells of a study are run folders
"""

from __future__ import annotations

from pathlib import Path

RUNS = Path("runs")
"""Where runs go that are not told otherwise."""

# ---- a run ----------------------------------------------------------------------------------------------------------------------

ASKED = "asked.json"
"""What the user asked for, and the command as typed."""
CONFIG = "config.json"
"""What the run became: the settled RunConfig and the model's origin. A saved model has one too, with `model` and `origin` alone."""
ENVIRONMENT = "env.json"
"""Machine, versions, data, sizes: what the result depends on besides the config."""
SEEN = "seen.npz"
"""Which pictures of the user's own it learnt from and chose on, as hashes of their names: its test split stays its own."""
METRICS = "metrics.jsonl"
"""The journal: one object a line."""
PACKED_METRICS = "metrics.jsonl.gz"
"""The same in a record: what is kept of a published run, without its weights."""
WEIGHTS = "model.safetensors"
PROBE = "probe.json"
"""What frozen features are worth on validation, of a model that learnt without labels."""
NEIGHBOURS = "neighbours"
"""Where the nearest neighbours' answers on the test pictures stand, beside the linear probe's (`answers_name`)."""
STATE = "state"
"""What a stopped run goes on from."""
SNAPSHOTS = "snapshots"
REPORT = "report.html"
EXPLORER = "explore.html"
"""The explorer as one file, which the demo leaves."""
FIGURES = "figures"
FILM = "film"
"""How the run's model came to be: an animation, a sheet, and a picture of each snapshot in FRAMES."""
FRAMES = "frames"
AUDIT = "audit"
"""Which explanations of this model can be trusted: VERDICTS, a page and its figures."""
VERDICTS = "audit.json"
QUANTISED = "model.onnx"
"""The model in 8 bits; beside it the same in 16 (`stored_name`), PROOF and a page."""
PROOF = "proof.json"
"""How far the smaller models answer as the fp32 one does."""
LOCK = ".lock"
"""Held while a process writes here."""
MANIFEST = "manifest.json"
"""Size and SHA-256 of the files beside it."""


def stored_name(precision: str) -> str:
    """A model with weights in bf16 or fp16."""
    return f"model.{precision}.onnx"


def scores_name(split: str = "test") -> str:
    """Scores on a split that was answered when the training was over: test, sealed, validation."""
    return f"{split}.json"


def answers_name(split: str = "test") -> str:
    """The same image by image."""
    return f"{split}.npz"


def pictures_name(split: str = "test") -> str:
    """Small pictures of the images that a report shows."""
    return f"{split}.webp"


# ---- a state, in STATE/a and STATE/b --------------------------------------------------------------------------------------------

PROGRESS = "progress.json"
"""Where the run was: counters, the length of its journal, the number of processes."""


def tensors_name(rank: int) -> str:
    """What one process wrote: its part of every tensor, and its random states."""
    return f"tensors-{rank}.safetensors"


# ---- a study --------------------------------------------------------------------------------------------------------------------

STUDY = "study.json"
TUNING = "tuning.json"
RESULT = "result.json"
TABLE = "table.md"
PRETRAINING = "pretraining"
"""A study of its own inside one of pre-training: the runs whose weights its cells start from."""
CELLS = "cells"
CELL = "cell.json"
"""Written last in a cell's folder: the cell is done."""

# ---- what `vitral embed` leaves in a folder --------------------------------------------------------------------------------------

FEATURES = "features.npz"
EMBEDDED = "embedding.json"


def snapshot_name(step: int) -> str:
    return f"step-{step:07d}"
