"""A disk that takes no more, under every writer: one line that says so, and nothing half-written.

The system refuses every write beyond a length (RLIMIT_FSIZE): what C libraries write themselves meets it too, as it would a full disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
from PIL import Image

from fuzz.confined import Ending
from vitral.build import create
from vitral.cli import main
from vitral.weights.checkpoint import save

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bounds of a process are set the Linux way")

TESTS = Path(__file__).parents[1]
WRITERS = {
    "train": "train digits --epochs 0.1 --device cpu --quiet --out {out}/run",
    "report": "report {run} --out {out}/report.html",
    "figures": "figures {run} {picture} --out {out}",
    "look": "look {run} {picture} --out {out}",
    "explore": "explore {run} {picture} --export {out}/page.html",
    "eval": "eval {run} digits --out {out} --table {out}/answers.csv",
    "eval, Parquet": "eval {run} digits --table {out}/answers.parquet",
    "predict": "predict {run} {picture} --table {out}/answers.json",
    "embed": "embed {run} {folder} --out {out}/vectors.npz",
    "runs": "runs {run} --out {out}/curves.png",
    "data show": "data show digits --out {out}",
    **{f"convert, {kind}": f"weights convert {{plain}} {{out}} --format {kind}" for kind in ("timm", "hf", "npz", "onnx")},
}

FAST = ("train", "convert, timm")
SMALL = ("predict", "embed")
"""What they write has room in the little that is left."""
CASES = [
    pytest.param(writer, room, id=f"{writer}, {room}", marks=[] if writer in FAST and not room else pytest.mark.slow)
    for writer in WRITERS
    for room in (0, 3000)
    if not (room and writer in SMALL)
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full")
    (folder / "pictures" / "a").mkdir(parents=True)
    Image.new("L", (8, 8)).save(folder / "pictures" / "a" / "one.png")
    assert main(f"train digits --epochs 0.1 --device cpu --quiet --set depth=2 width=16 heads=2 --out {folder / 'run'}".split()) == 0
    save(create("ti/16", classes=3, image_size=32, width=16, depth=1, heads=2, mlp_width=32), folder / "plain")
    return folder


@pytest.fixture(scope="module")
def run_with() -> Iterator[Callable[[list[str], int], Ending]]:
    """Command and bytes that a file may have → how it ended, in a child of a process that only waits."""
    with subprocess.Popen([sys.executable, "-m", "fuzz.short_of_room"], cwd=TESTS, stdin=PIPE, stdout=PIPE, text=True) as waiting:
        assert waiting.stdin is not None and waiting.stdout is not None

        def run(words: list[str], room: int) -> Ending:
            print(json.dumps([words, room]), file=waiting.stdin, flush=True)
            return Ending(**json.loads(waiting.stdout.readline()))

        yield run
        waiting.stdin.close()


@pytest.mark.parametrize(("writer", "room"), CASES)
def test_a_writer_says_so_in_one_line_and_leaves_nothing_half_written(
    writer: str, room: int, made: Path, tmp_path: Path, run_with: Callable[[list[str], int], Ending]
) -> None:
    if "onnx" in writer:
        pytest.importorskip("onnxscript")
    out = tmp_path / "out"
    given = {
        "run": made / "run",
        "plain": made / "plain",
        "picture": made / "pictures" / "a" / "one.png",
        "folder": made / "pictures",
        "out": out,
    }
    words = [word.format(**given) for word in WRITERS[writer].split()]
    before = {path: path.read_bytes() for path in (made / "run").rglob("*") if path.is_file()}
    ending = run_with(words, room)
    assert ending.kind == "fine", ending.message
    code, said = ending.value
    last = said.splitlines()[-1]
    assert code == 1 and last.startswith("vitral: cannot write") and "is the disk full?" in last and "Traceback" not in said, said
    left = [path for path in out.rglob("*") if path.is_file()] if out.exists() else []
    assert not [path.name for path in left if path.name.endswith(".tmp") or (path.stat().st_size == room and path.name != ".lock")]
    assert {path: path.read_bytes() for path in (made / "run").rglob("*") if path.is_file()} == before
