"""How much longer a command takes on a busy machine than on an idle one, and how long start-up is beside importing torch alone.

    python benchmarks/busy.py [--load 4] [--repeat 1] [--json] [-- train digits --epochs 10]

The command runs alone, then beside `--load` processes that do nothing but count; best of `--repeat`, the two in turn. It is timed as a
user waits for it, import of torch included. The machine must be idle otherwise: the load before it began is printed.
Start-up: `vitral predict` of one picture with an untrained tiny model, and `python -c "import torch"`, in turn, best of five.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from vitral.base.text import table

COUNT = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(10**6))"
"""Ends by itself where this script is killed."""


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """Busy neighbours, ended with the block whatever happens in it."""
    started = [subprocess.Popen([sys.executable, "-c", COUNT, str(os.getpid())]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def seconds(command: list[str]) -> tuple[float, float]:
    """(wall, CPU) of one run of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr[-500:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def busy(arguments: list[str], processes: int, repeat: int) -> dict[str, float]:
    """The command alone and beside others; each run into a folder of its own where it writes one."""
    times: dict[str, list[float]] = {"idle": [], "busy": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeat):
            for kind, neighbours in (("idle", 0), ("busy", processes)):
                out = ["--out", f"{folder}/{kind}{number}"] if arguments[0] in ("train", "demo") else []
                with load(neighbours):
                    times[kind].append(seconds([sys.executable, "-m", "vitral", *arguments, *out])[0])
    idle, beside = min(times["idle"]), min(times["busy"])
    return {"idle_seconds": round(idle, 2), "busy_seconds": round(beside, 2), "ratio": round(beside / idle, 2)}


def start_up(repeat: int = 5) -> dict[str, float]:
    """`vitral predict` of one picture against importing torch alone."""
    import numpy as np
    from PIL import Image

    from vitral.build import create
    from vitral.weights.checkpoint import save

    with tempfile.TemporaryDirectory() as folder:
        save(create("ti/16", classes=10), Path(folder) / "model")
        Image.fromarray(np.zeros((224, 224, 3), np.uint8)).save(Path(folder) / "picture.png")
        commands = {
            "torch": [sys.executable, "-c", "import torch"],
            "predict": [sys.executable, "-m", "vitral", "predict", f"{folder}/model", f"{folder}/picture.png", "--device", "cpu"],
        }
        times = [{name: seconds(command) for name, command in commands.items()} for _ in range(repeat)]
    found = {name: [min(each[name][place] for each in times) for place in (0, 1)] for name in commands}
    return {
        **{f"{name}_{kind}_seconds": round(found[name][place], 2) for name in found for place, kind in enumerate(("wall", "cpu"))},
        "wall_ratio": round(found["predict"][0] / found["torch"][0], 2),
        "cpu_ratio": round(found["predict"][1] / found["torch"][1], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--no-start-up", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("command", nargs="*", default=["train", "digits", "--quiet"])
    asked = parser.parse_args()
    before = os.getloadavg()[0]
    result: dict[str, object] = {
        "command": " ".join(asked.command),
        "processes": asked.load,
        "cores": os.cpu_count(),
        "load_before": before,
    }
    result |= {} if asked.no_start_up else {"start_up": start_up()}
    result |= busy(asked.command, asked.load, asked.repeat)
    if asked.json:
        print(json.dumps(result, indent=2))
        return
    started = result.pop("start_up", {})
    print(table([(name, str(value)) for name, value in (*result.items(), *started.items())]))  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
