"""Run what has no record yet, as far as the time goes, and collect each record as it is made.

    python results/run_missing.py                       what is missing, in order, and whether its data and weights are at hand
    python results/run_missing.py --minutes 9           runs the first that fit, one after another
    python results/run_missing.py --minutes 9 --only report-cifar,choice-* --seeds 0,1 --together 2 --tar records.tar.gz

Runs and studies stay in --out (runs/), their records go to results/records. What the clock stops is saved, and the next call goes on
with it. So a row that does not fit into what is left is begun all the same while half of the time is left, or when nothing else fits; one
whose own time is published (`whole` in rows.toml) is not. Where a row starts from another's weights, that one runs first. Nothing is
fetched: what lacks its data is passed over, and said. Tiny-ImageNet is written from our tiles where the folder tinyimagenet-32px is here.
OUT/NAME.log has what a command said, OUT/ledger.md a line for each, for queue.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from collect import RECORDS, collect
from missing import TINY, Job, absent, has_weights, missing, with_needs
from tinyimagenet_tiles import TILES, write_published

from vitral.base import layout
from vitral.base.errors import VitralError
from vitral.base.files import make_folder, read_json, write_json
from vitral.base.text import duration, few, table
from vitral.data.sources.catalogue import CATALOGUE
from vitral.data.sources.fetch import data_root, present
from vitral.run.answers import Answers
from vitral.run.archive import opened
from vitral.run.times import process_start

GRACE = 25.0
"""Seconds before the end at which what runs is asked to stop: a training saves itself within a few."""
LEAST = 60.0
"""Seconds that must be left to begin what will be stopped: a GPU's code is compiled first."""
SPENT = "spent.json"
"""Seconds that those have had which the clock stopped."""


@dataclass
class Child:
    """A command that runs."""

    job: Job
    process: subprocess.Popen[bytes]
    started: float
    alone: bool
    """Nothing has run beside it, and it was not gone on with: its times are its own."""
    stopped: bool = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


class Runner:
    """Begins one job after the other, or several side by side, until all are done or the time is over."""

    def __init__(self, jobs: Sequence[Job], seconds: float, out: Path, records: Path, together: int = 1) -> None:
        self.waiting, self.out, self.records, self.together = list(jobs), make_folder(out), records, together
        self.for_weights = {job.name for job in jobs} - {job.name for job in missing(records)}
        self.seconds, self.end = seconds, time.monotonic() + seconds
        self.spent: dict[str, float] = read_json(out / SPENT) if (out / SPENT).is_file() else {}
        self.running: list[Child] = []
        self.made: list[Path] = []
        self.failed = False

    def run(self) -> None:
        before = {number: signal.signal(number, lambda *_: self.hurry()) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            while self.left > 0:
                self.look()
                while len(self.running) < self.together and (job := self.next()) is not None:
                    self.start(job)
                if not self.running:
                    break
                time.sleep(0.2)
            self.stop()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        for job in self.waiting:
            lacking = [name for name in job.needs if not has_weights(self.out, name)]
            why = f"it waits for {', '.join(lacking)}" if lacking else f"it does not fit ({duration(self.rest(job))}, estimated)"
            print(f"{job.title}: not run, {why}")

    @property
    def left(self) -> float:
        return self.end - GRACE - time.monotonic()

    def hurry(self) -> None:
        """A signal asks this to end: as if the time were over."""
        self.end = min(self.end, time.monotonic() + GRACE)

    def rest(self, job: Job) -> float:
        """Seconds that it still takes, about."""
        spent = self.spent.get(job.name, 0.0) if (self.out / job.name).exists() else 0.0  # its folder may have been removed
        return max(60 * job.minutes - spent, LEAST / 2)

    def next(self) -> Job | None:
        """The first that fits, or that may be begun and gone on with later."""
        ready = [job for job in self.waiting if all(has_weights(self.out, name) for name in job.needs)]
        unfinished = [job for job in ready if not job.whole and self.left >= LEAST]
        at_once = unfinished if self.left >= self.seconds / 2 else []
        fitting = [job for job in ready if self.rest(job) <= self.left or job in at_once]
        return next(iter(fitting or unfinished), None)

    def start(self, job: Job) -> None:
        self.waiting.remove(job)
        for other in self.running:
            other.alone = False
        alone, rest = not self.running and not (self.out / job.name).exists(), self.rest(job)
        longer = "" if rest <= self.left else ": if it is stopped, the next call continues it"
        print(f"{job.title}: started, about {duration(rest)}, {duration(self.left)} left{longer}", flush=True)
        with open(self.out / f"{job.name}.log", "ab") as log:
            # In a session of its own, so that what it starts can be ended with it.
            process = subprocess.Popen(arguments(job, self.out), stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self.running.append(Child(job, process, time.monotonic(), alone))

    def look(self) -> None:
        for child in [child for child in self.running if child.process.poll() is not None]:
            self.finish(child)

    def stop(self) -> None:
        """Ask what runs to save itself, wait as long as there is time, then end it."""
        self.look()
        for child in self.running:
            child.stopped = True
            child.process.terminate()
        while self.running:
            if time.monotonic() > self.end:
                for child in self.running:
                    os.killpg(child.process.pid, signal.SIGKILL)
                    child.process.wait()
            self.look()
            time.sleep(0.1)

    def finish(self, child: Child) -> None:
        """Keep what came of it, and say so in a line."""
        self.running.remove(child)
        job, before = child.job, self.spent.pop(child.job.name, 0.0)
        done, text = "", ""
        if child.process.returncode == 0:
            try:
                done, text = ", alone" if child.alone else "", self.keep(child)
            except (VitralError, OSError) as error:
                done, text, self.failed = ": not collected", f"not collected: {error}", True
        elif child.stopped:
            self.spent[job.name] = before + child.seconds
            done, text = ": stopped", "stopped, the next call continues it"
        else:
            log = (self.out / f"{job.name}.log").read_text(encoding="utf-8", errors="replace").strip()
            done, text, self.failed = ": failed", f"failed: {log.splitlines()[-1] if log else 'it printed nothing'}", True
        write_json(self.out / SPENT, self.spent)
        in_all = f" ({duration(before + child.seconds)} in all)" if before else ""
        print(f"{job.title}: {duration(child.seconds)}{in_all}, {text}", flush=True)
        with open(self.out / "ledger.md", "a", encoding="utf-8") as ledger:
            ledger.write(f"| {job.title} | {max(1, round(child.seconds / 60))} | {datetime.date.today()}{done} |\n")

    def keep(self, child: Child) -> str:
        """Collect the record; what it says."""
        job = child.job
        if job.name in self.for_weights:
            return "its weights are there; the record that it has stays"
        self.made.append(collect(self.out / job.name, self.records, job.record, child.alone))
        return score(self.made[-1])


def arguments(job: Job, out: Path) -> list[str]:
    """The command as it is given here: with this Python, folders under `out`, and going on with what was stopped."""
    words = [re.sub(r"(^|[=,])runs/", lambda match: f"{match[1]}{out}/", word) for word in shlex.split(job.command)]
    words += [] if "--out" in words else ["--out", str(out / job.name)]
    words += ["--resume", "auto"] if words[1] in ("train", "pretrain") else []  # a study goes on by itself
    return [sys.executable, "-m", *words]


def write_tiny(jobs: Sequence[Job]) -> None:
    """Write Tiny-ImageNet as published, if a job needs it, it is not there, and our tiles are."""
    entry, root = CATALOGUE[TINY], data_root(None)
    needed = any(TINY in shlex.split(job.command) for job in jobs)
    if needed and TILES.is_dir() and present(entry, root) is None:
        write_published(TILES, root / entry.folder)


def score(record: Path) -> str:
    """`test 97.87 %` of a run, on what it was judged on; `vit 72.10 %, cnn 88.39 %` of a study."""
    with opened(record) as folder:
        if (folder / layout.RESULT).is_file():
            return ", ".join(f"{row['model']} {100 * row['mean']:.2f} %" for row in read_json(folder / layout.RESULT)["rows"])
        split = next((split for split in ("test", "validation") if (folder / layout.answers_name(split)).is_file()), None)
        return "collected" if split is None else f"{split} {100 * Answers.read(folder, split).right.mean():.2f} %"


def chosen(jobs: Sequence[Job], only: str | None, seeds: str | None) -> list[Job]:
    named = [job for job in jobs if only is None or any(fnmatch(job.record, pattern) for pattern in only.split(","))]
    return [job for job in named if seeds is None or job.seed is None or str(job.seed) in seeds.split(",")]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="that this may take; without it, what is missing is listed and nothing is run")
    parser.add_argument("--only", help="rows, with commas; * stands for anything")
    parser.add_argument("--seeds", help="with commas")
    parser.add_argument("--together", type=int, default=1, help="so many at a time; the times of runs side by side are upper bounds")
    parser.add_argument("--out", type=Path, default=layout.RUNS, help="where runs and studies, logs and the ledger go")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--tar", type=Path, help="also pack the records of this call into this .tar.gz")
    flags = parser.parse_args(arguments)
    jobs = with_needs(chosen(missing(flags.records), flags.only, flags.seeds), flags.out)
    lacking = {job: absent(job) for job in jobs}
    if flags.minutes is None:
        after = {job: [name for name in job.needs if not has_weights(flags.out, name)] for job in jobs}
        ready = {job: "no" if lacking[job] else f"after {', '.join(after[job])}" if after[job] else "yes" for job in jobs}
        lines = [[job.title, f"{job.minutes:g}", ready[job], job.command] for job in jobs]
        print(table(lines, ["row", "minutes", "at hand", "command"], "lrl"))
        print(f"{len(jobs)} to run, about {duration(60 * sum(job.minutes for job in jobs))} on one H200")
    for text in dict.fromkeys(text for texts in lacking.values() for text in texts):
        print(f"{text} (for {few([job.name for job in jobs if text in lacking[job]])})")
    if flags.minutes is None:
        return 0
    started = process_start() if arguments is None else time.time()  # Python's own start is part of the minutes
    jobs = [job for job in jobs if not lacking[job]]
    write_tiny(jobs)
    runner = Runner(jobs, 60 * flags.minutes - (time.time() - started), flags.out, flags.records, flags.together)
    runner.run()
    if flags.tar:
        with tarfile.open(flags.tar, "w:gz") as archive:
            for path in runner.made:
                archive.add(path, path.name)
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())
