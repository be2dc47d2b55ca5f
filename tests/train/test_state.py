import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vitral.train.state import seed_process

WORKERS = Path(__file__).parent / "workers.py"


def outcome(*arguments: object) -> dict:
    done = subprocess.run([sys.executable, str(WORKERS), *map(str, arguments)], capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_each_seed_process_and_step_draws_its_own_numbers():
    def drawn(*place: int) -> float:
        seed_process(*place)
        return torch.rand(()).item()

    with torch.random.fork_rng(devices=[]):
        places = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1)]
        assert len({drawn(*place) for place in places}) == len(places)
        assert drawn(3, 1, 2) == drawn(3, 1, 2)


def test_a_run_killed_twice_ends_bit_identical(tmp_path: Path):
    result = outcome("kills", 2, 1, tmp_path)
    assert len(result["moments"]) == 2 and "in a write" in result["moments"]
    assert result["same_weights"] and result["same_journal"], result["moments"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_ten_kills_checkpoint_writes_included(tmp_path: Path, seed: int):
    result = outcome("kills", 10, seed, tmp_path)
    assert len(result["moments"]) == 10 and result["moments"].count("in a write") == 5
    assert result["same_weights"] and result["same_journal"], result["moments"]
