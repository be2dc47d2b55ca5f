"""How fast a model is here: who is timed how often, what is charged, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from vitral.base.errors import UsageError
from vitral.build import create
from vitral.cli import main
from vitral.cost.flops import vit_flops
from vitral.study import bench as module
from vitral.study.bench import ACTIONS, LOOKING, START, Action, Bench, bench, in_turn, own_flops, ratio_of

TINY: dict[str, Any] = {"image_size": 32, "patch_size": 8, "width": 16, "depth": 2, "heads": 2, "mlp_width": 32, "classes": 5}
TIMED = [action for action in ACTIONS if action != START]
"""A start is a process of its own, with seconds of imports."""
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def measured() -> Bench:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "peak", lambda device: 1e12)
        return bench("ti/16", device="cpu", batch=2, rounds=2, actions=TIMED, quiet=True, **TINY)


def test_every_action_is_measured(measured: Bench):
    assert {row.action for row in measured.rows} == {action for action in TIMED if action != LOOKING}
    assert len(measured.looking) == 2
    assert all(0 < row.spread[0] <= row.seconds <= row.spread[1] for row in measured.rows)
    assert json.loads(json.dumps(measured.to_dict()))["rows"][0]["action"] == "training step"
    assert all(row.action in measured.text() for row in measured.rows)


def test_a_start_is_the_best_of_its_processes(monkeypatch: pytest.MonkeyPatch):
    starts = iter([(3.0, 30), (2.0, 20), None])
    monkeypatch.setattr(module, "peak", lambda device: 1e12)
    monkeypatch.setattr(module, "start_once", lambda lines, config: next(starts))
    (row,) = bench("ti/16", device="cpu", actions=[START], quiet=True, **TINY).rows
    assert (row.seconds, row.memory) == (2.0, 20)


def test_it_is_charged_with_what_it_computes(measured: Bench, monkeypatch: pytest.MonkeyPatch):
    """The last block's patches are not made on a GPU, nor by a CPU in bf16: they are no share of its peak."""
    config = create("ti/16", **TINY).config
    spared, whole = vit_flops(config, read=1).total, vit_flops(config).total
    gpu = torch.device("cuda")
    assert own_flops(config, gpu, "training step") == own_flops(config, gpu, "inference") == spared
    assert own_flops(config, CPU, "inference") == whole, "in fp32 they are made"
    for row in measured.rows:
        if row.action in ("training step", "inference") and row.share_of_peak:
            passes = 3 if row.action == "training step" else 1
            assert row.share_of_peak * row.seconds * 1e12 == pytest.approx(passes * whole * row.images)
    monkeypatch.setattr(module, "has_bf16", lambda device: True)
    monkeypatch.setattr(module, "WORTH", 0)
    assert own_flops(config, CPU, "inference of one") == spared and own_flops(config, CPU, "training step") == whole


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [(["cnn"], "no ViT"), (["ti/16", "--rounds", "1"], "at least 2"), (["b16"], "did you mean")],
)
def test_what_cannot_be_measured_is_one_line(arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", *arguments, "--device", "cpu"]) in (1, 2)
    assert hint in capsys.readouterr().err


def test_an_unknown_action_is_refused():
    with pytest.raises(UsageError, match="'sleep'"):
        bench("ti/16", device="cpu", actions=["sleep"])


def test_all_have_as_many_rounds_in_turn_and_short_ones_several_goes_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], []

    def takes(name: str, seconds: float) -> Action:
        def action() -> None:
            calls.append(name)
            clock[0] += seconds

        return action

    turn = 0.05
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    times = in_turn({"long": takes("long", 1.0), "short": takes("short", turn / 3.5)}, CPU, 3)
    assert calls == ["long", "short", *(["long"] + ["short"] * 4) * 3], "one go each to find out, then the rounds"
    assert times["long"] == pytest.approx([1.0] * 3) and times["short"] == pytest.approx([turn / 3.5] * 3)


def test_a_ratio_is_taken_within_its_round() -> None:
    middle, (low, high) = ratio_of([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])
    assert (middle, low, high) == (2.0, 2.0, 2.0), "a machine that became slower, twice"
    middle, (low, high) = ratio_of([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    assert middle == 2.0 and low == pytest.approx(1.2) and high == pytest.approx(2.8)
