"""Vitral beside other libraries: what is measured, what is said of it, and what is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from vitral.base.errors import UsageError
from vitral.build import create
from vitral.cost.flops import vit_flops
from vitral.study.bench import ACTIONS, LOOKING, START, Stage

from .scripts import load_script

peers = load_script(Path(__file__).parents[1] / "benchmarks" / "peers.py")
OURS, PEERS, Row, compare = peers.OURS, peers.PEERS, peers.Row, peers.compare
TINY: dict[str, Any] = {"image_size": 32, "patch_size": 8, "width": 16, "depth": 2, "heads": 2, "mlp_width": 32, "classes": 5}
TIMED = [action for action in ACTIONS if action != START]
"""A start is a process of its own, with seconds of imports."""
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitral.study.bench.peak", lambda device: 1e12)


def test_every_action_is_measured_for_ours_and_its_peers() -> None:
    measured = compare("ti/16", ["torchvision"], device="cpu", batch=2, rounds=2, actions=TIMED, **TINY)
    pairs = {(row.action, row.contestant) for row in measured.rows}
    assert {(action, OURS) for action in TIMED if action != LOOKING} <= pairs and ("inference", "torchvision") in pairs
    assert len(measured.looking) == 2 and not any(name == OURS for name in measured.absent)
    for row in measured.rows:
        assert row.seconds > 0 and (row.ratio is None) == (row.contestant == OURS)
    record = json.loads(json.dumps(measured.to_dict()))
    row = {"action", "mode", "contestant", "seconds", "images", "ratio", "interval", "memory", "share_of_peak", "told"}
    assert set(record["rows"][0]) == row, "results/speed_tables.py and the committed records have these keys"
    assert set(record) == {"model", "machine", "device", "rounds", "versions", "peak", "rows", "looking", "absent"}


def test_each_action_hands_its_result_out() -> None:
    """Compiling may outlast the time there is: what was measured before it is stored."""
    results: list[Any] = []
    actions = ["inference", "inference of one", LOOKING]
    last = compare("ti/16", [], device="cpu", batch=2, rounds=2, actions=actions, after_each=results.append, **TINY)
    assert [len(each.rows) for each in results] == [1, 2, 2] and [len(each.looking or {}) for each in results] == [0, 0, 2]
    assert results[-1] == last


def test_ours_is_charged_with_what_it_computes_and_the_others_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    config = create("ti/16", **TINY).config
    monkeypatch.setattr("vitral.study.bench.own_flops", lambda *_: 10)
    monkeypatch.setattr("vitral.study.bench.warmed_up", lambda make, device: (lambda: None, None))
    monkeypatch.setattr("vitral.study.bench.in_turn", lambda actions, device, rounds: {name: [0.5, 0.5] for name in actions})
    stage = Stage("inference", "eager", 8, lambda *_: lambda: None, 1.0)
    (ours, theirs), failed = peers.race(stage, config, PEERS[:1], CPU, 2, 1000.0)
    assert not failed and ours.share_of_peak == 0.16 and theirs.share_of_peak == vit_flops(config).total * 8 / 0.5 / 1000


@pytest.mark.slow
def test_the_libraries_build_the_same_model_and_the_same_maps() -> None:
    model = create("ti/16", **TINY)
    counts = sum(parameter.numel() for parameter in model.parameters())
    for peer in PEERS:
        pytest.importorskip(peer.package)
        other = peer.build(model.config)
        assert sum(parameter.numel() for parameter in other.parameters()) == pytest.approx(counts, rel=0.05), peer.name
        if peer.capture is not None:
            with torch.no_grad():
                maps = peer.capture(model.config, CPU)(torch.randn(3, 3, 32, 32))
            assert len(maps) == 2 and {tuple(each.shape) for each in maps} == {(3, 2, 17, 17)}, peer.name
            assert torch.allclose(maps[0].sum(dim=-1), torch.ones(3, 2, 17), atol=1e-5), peer.name


def test_a_ratio_that_its_spread_could_explain_is_not_shown() -> None:
    def row(name: str, low: float, high: float) -> Any:
        return Row("inference", "eager", name, 0.02, 8, (low + high) / 2, (low, high))

    rows = (Row("inference", "eager", OURS, 0.01, 8), row("timm", 0.9, 1.4), row("torchvision", 1.2, 1.4), row("transformers", 0.7, 0.8))
    shown = peers.Comparison("ti/16", {}, "cpu", 2, {}, 1e12, rows, {}, {"vit-pytorch": "not installed"}).text()
    assert "20 ms (≈)" in shown and "20 ms (1.30 ×)" in shown and "20 ms (0.75 ×)" in shown
    assert "vit-pytorch is absent: not installed" in shown


def test_a_library_that_is_missing_or_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not there, there without what it needs, there but broken, or not able to do one action: a line each, and the rest is measured."""
    broken = {
        "timm": ModuleNotFoundError("No module named 'timm'", name="timm"),
        "transformers": ModuleNotFoundError("No module named 'tokenizers'", name="tokenizers"),
        "vit_pytorch": RuntimeError("made for another torch\nand more"),
    }

    def load(name: str) -> None:
        if name in broken:
            raise broken[name]

    def fail(*_: Any) -> Any:
        raise RuntimeError("cannot be built")

    monkeypatch.setattr(peers.importlib, "import_module", load)
    monkeypatch.setattr(peers, "PEERS", tuple(replace(peer, build=fail, capture=None) for peer in PEERS))
    result = compare("ti/16", device="cpu", batch=2, rounds=2, actions=["inference of one"], **TINY)
    assert result.absent == {
        "timm": "not installed",
        "transformers": "it needs tokenizers, which is not installed",
        "vit-pytorch": "it cannot be imported: RuntimeError: made for another torch …",
        "torchvision (inference of one, eager)": "RuntimeError: cannot be built",
    }
    assert {(row.action, row.contestant) for row in result.rows} == {("inference of one", OURS)}


def test_only_plain_vits_have_peers() -> None:
    with pytest.raises(UsageError, match="plain ViT"):
        compare("ti/16", device="cpu", qk_norm=True)
