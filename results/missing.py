"""What is yet to be measured: the rows, choices and studies whose records are not there, in the order in which they are to be run.

What is wanted stands in rows.toml (rows, choices, studies) and claims.toml (studies that a claim waits for); what is there, in a folder of
records, one archive each. `build.py` makes the queue's list of it, `run_missing.py` runs it.
"""

from __future__ import annotations

import itertools
import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tinyimagenet_tiles import TILES

from vitral.base import layout
from vitral.data.sources.catalogue import CATALOGUE
from vitral.data.sources.fetch import advice, data_root, present
from vitral.presets.runs import RUNS

HERE = Path(__file__).parent
NAMED_RUN = re.compile(r"(?<![\w./-])runs/([\w.-]+)")
"""A run's folder as a command has it."""
SEED = re.compile(r"\bS\b")
"""Where a command has its seed."""
SEEDS = {"row": 3, "choice": 2}
TINY = "tinyimagenet32"
"""The data set that our tiles can make."""


@dataclass(frozen=True)
class Job:
    """One run or study that leaves a record."""

    record: str
    seed: int | None
    """None: a study, which has its seeds inside."""
    published: str
    """The command with S for its seed."""
    minutes: float
    """Estimated, on one H200."""
    whole: bool = False
    """How long it takes is part of its result: it is not begun where it would have to be stopped."""

    @property
    def name(self) -> str:
        """Of its record, and of its folder among the runs."""
        return self.record if self.seed is None else f"{self.record}-{self.seed}"

    @property
    def command(self) -> str:
        return self.published if self.seed is None else SEED.sub(str(self.seed), self.published)

    @property
    def title(self) -> str:
        return self.record if self.seed is None else f"{self.record}, seed {self.seed}"

    @property
    def needs(self) -> tuple[str, ...]:
        """Runs whose weights it starts from."""
        return tuple(name for name in NAMED_RUN.findall(self.command) if name != self.name)


def toml(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))


def all_jobs() -> list[Job]:
    """Everything that has a record, or is to have one."""
    rows = toml("rows")
    jobs = [job for kind in SEEDS for row in rows.get(kind, ()) for job in _each_seed(row, row.get("seeds", SEEDS[kind]))]
    jobs += [_study(study, study["record"]) for study in rows.get("study", ())]
    jobs += [_study(claim, claim["study"]) for claim in toml("claims").get("claim", ()) if "study" in claim]
    order: list[str] = rows.get("order", [])
    return sorted(jobs, key=lambda job: next((index for index, pattern in enumerate(order) if fnmatch(job.record, pattern)), len(order)))


def missing(records: Path) -> list[Job]:
    """What is wanted and has no record."""
    return [job for job in all_jobs() if not (records / f"{job.name}.zip").is_file()]


def _each_seed(row: dict[str, Any], seeds: int) -> list[Job]:
    shared = float(row["minutes"]), bool(row.get("whole"))
    return [Job(row["record"], seed, row["command"], *shared) for seed in range(seeds)]


def _study(study: dict[str, Any], name: str) -> Job:
    return Job(name, None, study["command"], float(study["minutes"]))


def has_weights(runs: Path, name: str) -> bool:
    return (runs / name / layout.WEIGHTS).is_file()


def with_needs(jobs: Sequence[Job], runs: Path) -> list[Job]:
    """Each after those whose weights it starts from, as far as these are not among the `runs`."""
    makers = {job.name: job for job in all_jobs()}
    ordered: dict[str, Job] = {}
    for job in jobs:
        before = [makers[name] for name in job.needs if name in makers and not has_weights(runs, name)]
        ordered |= {one.name: one for one in (*before, job) if one.name not in ordered}
    return list(ordered.values())


# ---- what must be at hand --------------------------------------------------------------------------------------------------------


def absent(job: Job) -> list[str]:
    """What a command names and is not here, each with how to get it. Nothing is fetched."""
    words = shlex.split(job.command)
    value = {word: after for word, after in itertools.pairwise(words) if word.startswith("--")}
    data = [value.get("--data") or RUNS[words[2]].data.name] if words[1] == "train" else [words[2]]
    data += [value["--from-data"]] if "--from-data" in value else []
    weights = [part.rpartition("=")[2] for part in value.get("--from", "").split(",") if part and not part.startswith("runs/")]
    texts = [*map(_absent_data, data), *map(_absent_file, weights)]
    return [text for text in texts if text]


def _absent_data(name: str) -> str | None:
    if ":" in name:
        return _absent_file(name.partition(":")[2])
    entry, root = CATALOGUE[name], data_root(None)
    here = present(entry, root) or (name == TINY and TILES.is_dir())
    return None if here else f"{name} is not here: {advice(entry, root)}"


def _absent_file(name: str) -> str | None:
    """Named as seen from where the command is given."""
    how = toml("rows").get("get", {})
    return None if Path(name).exists() else f"{name} is not here: {how.get(Path(name).parts[0], 'put it there')}"
