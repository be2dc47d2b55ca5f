"""The run folder: the only contract between training and everything after it.

asked.json (what was asked for, the command as typed) · config.json (what it became: the settled RunConfig, the model's origin) ·
env.json (machine, data, sizes, compile time) · seen.npz (which of the user's own pictures it saw) · metrics.jsonl · model.safetensors ·
test.json, test.npz and test.webp (the test split, opened once; sealed.json … of a confirming run, validation.json … of one that chooses) ·
state/ · snapshots/
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base import layout
from vitral.base.errors import DataError, MissingError, UsageError
from vitral.base.files import SETTINGS_LIMIT, absent, check_writable, make_folder, read_json, write_atomic, write_json
from vitral.base.lock import FolderLock
from vitral.base.manifest import vouching
from vitral.base.origin import OWN, Origin
from vitral.config import OPEN, RunConfig, from_dict, to_dict
from vitral.data.splits.seen import SPLITS, SeenImages
from vitral.model.classifier import Classifier
from vitral.run.answers import Answers
from vitral.run.journal import read_metrics
from vitral.run.made_here import made_here, record
from vitral.run.verify import verify
from vitral.weights.checkpoint import load_checkpoint, save, write_weights
from vitral.weights.read import check_archive

FREE: dict[str, tuple[str, ...]] = {
    "train": ("device", "threads", "compile", "checkpoint_every", "strategy", "tensorboard", "wandb", "accumulate"),
    "data": ("root", "workers", "placement"),
    "pretrain": ("on_collapse", "online_knn"),
}
"""What a resumed run may change: nothing of it decides what is learnt."""


@dataclass(frozen=True)
class Asked:
    """What the user wanted, before the data and the weights had their say."""

    config: RunConfig
    run: str
    """The named run it began as; a config made by hand: its own name."""
    command: str | None = None
    """As typed; None: the run was begun from Python."""


class RunFolder:
    """A run on disk: `create` begins one, `open` reads one. Nothing else knows where its parts lie."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: FolderLock | None = None
        self._made: list[Path] = []

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    # ---- beginning and opening -------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: str | Path | None, asked: Asked, settled: RunConfig, origin: Origin) -> RunFolder:
        """A new run in `path`, or in the first free one of runs/NAME, runs/NAME-2 …; it belongs to this process until `close`."""
        return cls.reserve(path, settled.name).begin(asked, settled, origin)

    @classmethod
    def check_free(cls, path: str | Path | None) -> None:
        """Refuse a place where no run can begin, before anything is read; nothing is written yet."""
        place = Path(layout.RUNS if path is None else path)
        if path is not None and cls(path).exists:
            raise taken(place)
        check_writable(place)

    @classmethod
    def reserve(cls, path: str | Path | None, name: str) -> RunFolder:
        """A place for a new run, this process's until `close`, which leaves nothing of a run that never began."""
        run = cls._claim_free(name) if path is None else cls(path).claim()
        if run.exists:
            run.close()
            raise taken(run.path)
        return run

    def begin(self, asked: Asked, settled: RunConfig, origin: Origin) -> RunFolder:
        """Write down what the run is."""
        with vouching(self.path, layout.ASKED, layout.CONFIG):
            write_json(self.path / layout.ASKED, {"run": asked.run, "command": asked.command, "config": to_dict(asked.config)})
            write_json(self.path / layout.CONFIG, {**to_dict(settled), "origin": origin.to_dict()})
        record(self.path)
        return self

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """The run in `path`; one line when there is none."""
        run = cls(path)
        if not run.exists:
            kind = DataError if run.path.exists() else MissingError
            raise kind(f"{run.path} holds no run", "name a folder that `vitral train` wrote")
        run.refuse_links()
        return run

    @classmethod
    def newest(cls, name: str) -> RunFolder:
        """runs/NAME, or the last of runs/NAME-2 … that holds a run."""
        found = cls(layout.RUNS / name)
        for number in range(2, 10_000):
            following = cls(layout.RUNS / f"{name}-{number}")
            if not following.exists:
                break
            found = following
        return found

    @classmethod
    def _claim_free(cls, name: str) -> RunFolder:
        made = absent(layout.RUNS)
        make_folder(layout.RUNS)
        for number in range(1, 10_000):
            path = layout.RUNS / (name if number == 1 else f"{name}-{number}")
            try:
                os.mkdir(path)  # of two processes that come here at once, one makes it
                made = [path, *made]
            except FileExistsError:
                if (path / layout.CONFIG).exists() or (path / layout.LOCK).exists() or any(path.iterdir()):
                    continue
            run = cls(path).claim()
            run._made = made
            return run
        raise UsageError(f"{layout.RUNS} holds ten thousand runs of {name}", "name another folder with --out")

    def claim(self) -> RunFolder:
        """Keep every other process from writing here, until `close`."""
        self.refuse_links()
        self._made = absent(self.path)
        self._lock = FolderLock(make_folder(self.path), "a training").acquire()
        return self

    def refuse_links(self) -> None:
        """In a stranger's run a link could lead to any file of this user's, to be shown on a page or written over."""
        for folder, folders, files in os.walk(self.path) if self.exists and not made_here(self.path) else ():
            if link := next((path for name in (*folders, *files) if (path := Path(folder) / name).is_symlink()), None):
                copied = shlex.join(["cp", "-rL", str(self.path), f"{self.path}-copy"])
                raise DataError(f"{link} is a link, and {self.path} was not made on this machine", f"if you trust it, copy it: {copied}")

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        for folder in () if self.exists else self._made:
            with contextlib.suppress(OSError):  # somebody else has put something there
                folder.rmdir()

    @property
    def exists(self) -> bool:
        return (self.path / layout.CONFIG).is_file()

    # ---- what it says ----------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def asked(self) -> Asked | None:
        """None: the folder does not say."""
        path = self.path / layout.ASKED
        if not path.is_file():
            return None
        stored = read_json(path, SETTINGS_LIMIT)
        if not isinstance(stored, dict) or not isinstance(stored.get("run"), str) or "config" not in stored:
            raise DataError(f"{path} does not say what was asked for", "it may be damaged: start the run again")
        return Asked(from_dict(RunConfig, stored["config"], str(path)), stored["run"], stored.get("command"))

    @functools.cached_property
    def _config(self) -> tuple[RunConfig, Origin]:
        path = self.path / layout.CONFIG
        stored = read_json(path, SETTINGS_LIMIT)
        if not isinstance(stored, dict) or "train" not in stored:
            raise DataError(f"{path} describes no run", "name a folder that `vitral train` wrote")
        origin = Origin.from_dict(stored.pop("origin", {}))
        return from_dict(RunConfig, stored, str(path)), origin

    @property
    def settled(self) -> RunConfig:
        """What the run became: everything after its start reads this."""
        return self._config[0]

    @property
    def origin(self) -> Origin:
        return self._config[1]

    @property
    def command(self) -> str | None:
        """How to train it again: as typed, or by naming this folder. None: it is not written down, or a program began the run with
        a model or data of its own."""
        if self.asked is None:
            return None
        config = self.asked.config
        if config.model.family == OWN or any(str(name).startswith(f"{OWN}:") for name in (config.weights, config.data.name)):
            return None
        return self.asked.command or shlex.join(["vitral", "train", str(self.path)])

    @property
    def environment(self) -> dict[str, Any]:
        path = self.path / layout.ENVIRONMENT
        stored = read_json(path) if path.is_file() else {}
        if not isinstance(stored, dict) or not isinstance(stored.get("data", {}), dict):
            raise DataError(f"{path} does not say where the run was made", "it may be damaged")
        return stored

    @functools.cached_property
    def learnt(self) -> SeenImages:
        """Which pictures it saw, as far as it wrote that down."""
        path = self.path / layout.SEEN
        marks = self.environment.get("data", {}).get("fingerprint")
        labelled = isinstance(marks, dict) and self.settled.pretrain is None  # a class is part of the mark
        mark = marks.get("train") if labelled else None
        if not path.is_file():
            return SeenImages(str(self.path), {}, mark)
        try:
            check_archive(path)
            with np.load(path, allow_pickle=False) as stored:
                splits = {split: stored[split] for split in SPLITS}
            if any(value.dtype != np.uint64 or value.ndim != 2 or value.shape[1] != 2 for value in splits.values()):
                raise ValueError("its parts are not what they should be")
        except Exception as error:  # zipfile, zlib and NumPy each have their own errors for damaged input
            raise DataError(f"{path} cannot be read ({error})", f"remove {path}, or train it again") from error
        return SeenImages(str(self.path), splits, mark)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The journal as it stands."""
        return read_metrics(self.path / (layout.PACKED_METRICS if self.is_record else layout.METRICS))

    @property
    def is_record(self) -> bool:
        """What is kept of a published run: everything but the weights, the journal packed."""
        return (self.path / layout.PACKED_METRICS).is_file()

    @property
    def has_model(self) -> bool:
        return (self.path / layout.WEIGHTS).is_file()

    @property
    def finished(self) -> bool:
        """Whether the last thing a run does is done: the model written, and what is opened last scored."""
        if not self.has_model and not self.is_record:
            return False
        metrics = self.metrics
        return bool(metrics) and (not (opens := self.settled.opens) or metrics[-1].get("split") == opens[-1])

    def model(self) -> Classifier:
        """The final model."""
        return load_checkpoint(self.path)

    def snapshots(self) -> list[tuple[int, Path]]:
        """(step, folder of the model) in the order of training."""
        found = {folder: folder.name.removeprefix("step-") for folder in (self.path / layout.SNAPSHOTS).glob("step-*")}
        steps = {folder: int(step) for folder, step in found.items() if step.isascii() and step.isdigit() and len(step) < 20}
        return sorted((step, folder) for folder, step in steps.items() if (folder / layout.WEIGHTS).is_file())

    def probe(self) -> dict[str, Any] | None:
        """What its features are worth; None: it learnt with labels, or was not probed."""
        path = self.path / layout.PROBE
        return read_json(path) if path.is_file() else None

    def answers(self, split: str = "test") -> Answers:
        """What was answered on the test images (or the sealed ones), in the order of the split."""
        return Answers.read(self.path, split)

    # ---- what it is told -------------------------------------------------------------------------------------------------------

    def write_environment(self, facts: dict[str, Any]) -> None:
        """Adds to what is there."""
        with vouching(self.path, layout.ENVIRONMENT):
            write_json(self.path / layout.ENVIRONMENT, {**self.environment, **facts})

    def write_seen(self, splits: dict[str, np.ndarray] | None) -> None:
        """What `learnt` reads, of data that has names (`Data.seen`)."""
        if splits is None:
            return
        content = io.BytesIO()
        np.savez(content, **{split: splits[split] for split in SPLITS}, allow_pickle=False)
        with vouching(self.path, layout.SEEN):
            write_atomic(self.path / layout.SEEN, content.getvalue())

    def write_model(self, model: Classifier) -> None:
        """The final weights; and what the model knows of itself only now: its thresholds, where it gives several labels."""
        if model.origin.thresholds != self.origin.thresholds:
            origin, ours = dataclasses.replace(self.origin, thresholds=model.origin.thresholds), made_here(self.path)
            with vouching(self.path, layout.CONFIG):
                write_json(self.path / layout.CONFIG, {**to_dict(self.settled), "origin": origin.to_dict()})
            if ours:
                record(self.path)  # what stands there now is our own, too
            del self._config
        with vouching(self.path, layout.WEIGHTS):
            write_weights(self.path / layout.WEIGHTS, model)

    def write_snapshot(self, step: int, model: Classifier) -> None:
        save(model, self.path / layout.SNAPSHOTS / layout.snapshot_name(step))

    def write_answers(self, scores: dict[str, Any], answers: Answers, split: str = "test") -> None:
        with vouching(self.path, *answers.files(split), layout.scores_name(split)):
            answers.write(self.path, split)
            write_json(self.path / layout.scores_name(split), scores)

    def write_probe(self, scores: dict[str, Any]) -> None:
        with vouching(self.path, layout.PROBE):
            write_json(self.path / layout.PROBE, scores)

    def close_journal(self) -> None:
        """Nothing will be added to it any more: vouch for it as it is."""
        with vouching(self.path, layout.METRICS):
            pass

    def faults(self) -> list[str]:
        """What is not as it was written: the run's own files, its snapshots, and its states."""
        return verify(self.path).faults

    # ---- going on --------------------------------------------------------------------------------------------------------------

    def going_on(self, wanted: RunConfig) -> RunConfig:
        """The settled config to go on with: as the run began, but for what may change. Anything else that differs is refused by name."""
        if self.asked is None:
            raise UsageError(f"{self.path} has no {layout.ASKED}, so it cannot be resumed", "start a new run with --out")
        began, settled = self.asked.config, self.settled
        # Only the test is left: how it takes a bad image changes nothing that was learnt.
        free = {**FREE, "data": (*FREE["data"], "on_bad_image")} if self.has_model else FREE
        difference = _difference(began, wanted, free)
        if difference and _difference(settled, wanted, free):  # neither what was asked for nor what it became
            name, old, new = difference
            old = getattr(settled.model, name) if name in OPEN and old is None else old
            extended = name == "epochs" and self.finished
            hint = train_on(self.path, "MORE") if extended else "go on with the same settings, or start a new run with --out"
            raise UsageError(f"{self.path} was begun with {name} = {old}, not {new}", hint)
        for part, names in free.items():
            if getattr(settled, part) is None:
                continue
            changes = {name: getattr(getattr(wanted, part), name) for name in names}
            settled = dataclasses.replace(settled, **{part: dataclasses.replace(getattr(settled, part), **changes)})
        return settled


def _difference(began: RunConfig, wanted: RunConfig, free: dict[str, tuple[str, ...]]) -> tuple[str, Any, Any] | None:
    """The first field in which two runs learn something else."""
    if began.weights != wanted.weights:
        return "weights", began.weights, wanted.weights
    if (began.pretrain is None) != (wanted.pretrain is None):
        old, new = ("labels" if config.pretrain is None else config.pretrain.method for config in (began, wanted))
        return "pretrain", old, new
    for part in ("model", "data", "train", "pretrain") if began.pretrain is not None else ("model", "data", "train"):
        old, new = getattr(began, part), getattr(wanted, part)
        for field in dataclasses.fields(old):
            pair = getattr(old, field.name), getattr(new, field.name)
            if field.name not in free.get(part, ()) and pair[0] != pair[1]:
                return field.name, *pair
    return None


def seen_by(model: Classifier) -> SeenImages | None:
    """What the run saw that a model, or a snapshot of it, was read from."""
    if model.folder is None:
        return None
    for folder in (model.folder, model.folder.parent.parent):
        if (folder / layout.ENVIRONMENT).is_file() and (run := RunFolder(folder)).exists:
            return run.learnt
    return None


def taken(path: Path) -> UsageError:
    return UsageError(f"{path} already holds a training", f"add --resume to go on with it, or choose another folder than {path}")


def train_on(path: Path, epochs: str) -> str:
    """How a finished run is extended: a run of its own, so that what the first one was stays true."""
    command = ["vitral", "train", str(path), "--from", str(path), "--epochs", epochs, "--out", f"{path}-more"]
    return f"to train on from its weights, with a schedule of its own: {shlex.join(command)}"
