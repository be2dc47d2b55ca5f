"""What a user is told when a run stops."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import time

import pytest
import torch

from vitral.presets.models import model
from vitral.presets.runs import run
from vitral.train.failure import Interrupts, explained, out_of_memory
from vitral.train.parallel import World
from vitral.train.steps import run_memory

CPU = torch.device("cpu")


def test_the_advice_counts_in_the_run_s_own_dtype_and_compilation():
    config = dataclasses.replace(run("digits", batch_size=512, precision="fp32", compile="no"), model=model("tiny"))
    space = run_memory(config, 200, torch.float32, False).total

    def fits(**changes: str) -> int:
        changed = dataclasses.replace(config, train=dataclasses.replace(config.train, **changes))
        found = re.search(r"about (\d+) pictures", out_of_memory(changed, space, CPU).hint or "")
        assert found
        return int(found[1])

    assert 150 <= fits() <= 200 and fits(precision="bf16") > 1.2 * fits() and fits(compile="yes") > 1.2 * fits()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGXCPU"])
def test_signals_ask_the_loop_to_stop_and_are_then_as_before(name: str) -> None:
    number = getattr(signal, name)
    before = signal.getsignal(number)
    interrupts = Interrupts()
    with interrupts:
        assert not interrupts.asked
        os.kill(os.getpid(), number)
        time.sleep(0.01)
        assert interrupts.asked == name
        assert signal.getsignal(number) == before, "a second one stops at once"
    assert signal.getsignal(number) == before


def test_on_a_mac_a_missing_operator_names_the_way_out_and_memory_is_the_driver_s(monkeypatch: pytest.MonkeyPatch) -> None:
    mac, config = torch.device("mps"), dataclasses.replace(run("digits", batch_size=512), model=model("tiny"))
    missing = NotImplementedError("The operator 'aten::_pdist_forward' is not currently implemented for the MPS device.")
    assert "use --device cpu" in str(explained(missing, config, mac, World(), 3))
    asked = []
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: asked.append(1) or 1 << 30)
    told = str(explained(RuntimeError("MPS backend out of memory (MPS allocated: 1.00 GB)"), config, mac, World(), 3))
    assert asked and told.startswith("out of memory on mps with 512 pictures")
