import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vitral.train.parallel import World, lost_peer

WORKERS = Path(__file__).parent / "workers.py"


def outcome(*arguments: object) -> dict:
    done = subprocess.run([sys.executable, str(WORKERS), *map(str, arguments)], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_alone_everything_is_itself():
    world = World()
    assert world.main and not world.many and world.agree(True, False) == [True, False]
    columns = [np.arange(3)]
    assert world.gather(columns) is columns
    assert "process 0 lost contact" in str(lost_peer(RuntimeError("Connection closed by peer\nmore"), 0, 5))


@pytest.mark.slow
def test_two_processes_learn_what_one_does_and_resume_as_one(tmp_path: Path):
    curves = outcome("parallel", tmp_path)
    one = curves.pop("one")
    assert len(one) > 10 and set(curves) == {"ddp", "fsdp", "ddp-to-one", "fsdp-to-one"}
    for name, curve in curves.items():
        assert [line[:2] for line in curve] == [line[:2] for line in one], name
        assert np.allclose([line[2] for line in curve], [line[2] for line in one], rtol=2e-4), name


@pytest.mark.slow
def test_a_killed_process_ends_the_other_within_half_a_minute_and_is_named(tmp_path: Path):
    result = outcome("lost", tmp_path)
    assert result["seconds"] < 30
    assert "lost contact" in result["words"] or "killed" in result["words"]
    assert "--resume" in result["words"]


@pytest.mark.slow
def test_two_processes_go_by_one_clock(tmp_path: Path):
    """Where seconds are the budget the lr follows the clock: with two clocks the copies of a model would part."""
    found = outcome("clock", tmp_path)
    assert found["weights"][0] == found["weights"][1] and found["lines"] > 3, "and the journal has a curve, not its two ends"


@pytest.mark.slow
def test_two_processes_learn_without_labels_what_one_does(tmp_path: Path):
    found = outcome("pretrained", tmp_path)
    assert set(found) == {"lejepa", "dino"}
    for method, journals in found.items():
        assert len(journals["one"]) == len(journals["two"]) > 5, method
        for one, two in zip(journals["one"], journals["two"], strict=True):
            told = [value for value in two[2:] if value is not None]  # a line of training has no health
            assert one[:2] == two[:2] and len(told) > 0, (method, one, two)
            assert [value for value in one[2:] if value is not None] == pytest.approx(told, rel=2e-3), (method, one, two)
