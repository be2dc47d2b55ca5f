"""Contestants that take turns: what is measured, what is said of it, and what is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from vitral.base.errors import UsageError
from vitral.build import create
from vitral.cli import main
from vitral.cost.flops import vit_flops
from vitral.study.bench import ACTIONS, LOOKING, START, Bench, Row, _flops, _Made, _rows, bench
from vitral.study.timed import OURS

TINY: dict[str, Any] = {"image_size": 32, "patch_size": 8, "width": 16, "depth": 2, "heads": 2, "mlp_width": 32, "classes": 5}
TIMED = [action for action in ACTIONS if action != START]
"""A start is a process of its own, with seconds of imports."""


@pytest.fixture(scope="module")
def measured() -> Bench:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vitral.study.timed.peak", lambda place: 1e12)
        return bench("ti/16", device="cpu", batch=2, rounds=2, actions=TIMED, peers=["torchvision"], quiet=True, **TINY)


def test_every_action_is_measured_for_ours_and_its_peers(measured: Bench):
    found = {(row.action, row.contestant) for row in measured.rows}
    assert {(action, OURS) for action in TIMED if action != LOOKING} <= found and ("inference", "torchvision") in found
    assert len(measured.looking) == 2 and not any(name == OURS for name in measured.absent)
    for row in measured.rows:
        assert row.seconds > 0 and (row.ratio is None) == (row.contestant == OURS)
    json.dumps(measured.to_dict())


def test_what_is_known_is_handed_out_after_each_action(monkeypatch: pytest.MonkeyPatch):
    """Compiling may outlast the time there is: what was measured before is kept."""
    monkeypatch.setattr("vitral.study.timed.peak", lambda place: 1e12)
    known: list[Bench] = []
    actions = ["inference", "inference of one", LOOKING]
    result = bench("ti/16", device="cpu", batch=2, rounds=2, actions=actions, peers=[], quiet=True, after_each=known.append, **TINY)
    assert [len(each.rows) for each in known] == [1, 2, 2] and [len(each.looking) for each in known] == [0, 0, 2]
    assert known[-1] == result


def test_ours_is_charged_with_what_it_computes(measured: Bench, monkeypatch: pytest.MonkeyPatch):
    """The last block's patches are not made on a GPU, nor by a CPU in bf16: they are no share of its peak."""
    config = create("ti/16", **TINY).config
    spared, whole = vit_flops(config, read=1).total, vit_flops(config).total
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert _flops(config, gpu, "training step") == _flops(config, gpu, "inference") == (spared, whole)
    assert _flops(config, cpu, "inference") == (whole, whole), "in fp32 they are made"
    for row in measured.rows:
        if row.action in ("training step", "inference") and row.share_of_peak:
            passes = 3 if row.action == "training step" else 1
            assert row.share_of_peak * row.seconds * 1e12 == pytest.approx(passes * whole * row.images)
    monkeypatch.setattr("vitral.study.bench.has_bf16", lambda place: True)
    monkeypatch.setattr("vitral.study.bench.WORTH", 0)
    assert _flops(config, cpu, "inference of one") == (spared, whole) and _flops(config, cpu, "training step") == (whole, whole)
    made = _Made({name: lambda: None for name in (OURS, "timm")}, {}, {})
    monkeypatch.setattr("vitral.study.bench.in_turn", lambda actions, place, rounds: {name: [0.5, 0.5] for name in actions})
    ours, theirs = _rows("inference", "eager", 8, made, cpu, 2, (10.0, 20.0), 1000.0)
    assert (ours.share_of_peak, theirs.share_of_peak) == (0.16, 0.32)


@pytest.mark.slow
def test_the_libraries_build_the_same_model_and_the_same_maps():
    from vitral.build import create
    from vitral.study.peers import PEERS

    model = create("ti/16", **TINY)
    counts = sum(parameter.numel() for parameter in model.parameters())
    for peer in PEERS:
        pytest.importorskip(peer.package)
        other = peer.build(model.config)
        assert sum(parameter.numel() for parameter in other.parameters()) == pytest.approx(counts, rel=0.05), peer.name
        if peer.capture is not None:
            with torch.no_grad():
                maps = peer.capture(model.config, torch.device("cpu"))(torch.randn(3, 3, 32, 32))
            assert len(maps) == 2 and {tuple(each.shape) for each in maps} == {(3, 2, 17, 17)}, peer.name
            assert torch.allclose(maps[0].sum(dim=-1), torch.ones(3, 2, 17), atol=1e-5), peer.name


def test_a_ratio_that_its_spread_could_explain_is_not_given():
    def row(name: str, low: float, high: float) -> Row:
        return Row("inference", "eager", name, 0.02, 8, (low + high) / 2, (low, high))

    rows = (Row("inference", "eager", OURS, 0.01, 8), row("timm", 0.9, 1.4), row("torchvision", 1.2, 1.4), row("transformers", 0.7, 0.8))
    shown = Bench("ti/16", {}, "cpu", 2, {}, 1e12, rows, {}, {"vit-pytorch": "not installed"}).text()
    assert "20 ms (≈)" in shown and "20 ms (1.30 ×)" in shown and "20 ms (0.75 ×)" in shown
    assert "vit-pytorch is absent: not installed" in shown


def test_a_library_that_is_missing_or_fails_is_named(monkeypatch: pytest.MonkeyPatch):
    """Not there, there without what it needs, there but broken, or not able to do one action: a line each, and the rest is measured."""
    from vitral.study import bench as module

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

    monkeypatch.setattr("vitral.study.timed.peak", lambda place: 1e12)
    monkeypatch.setattr(module.importlib, "import_module", load)
    monkeypatch.setattr(module, "PEERS", tuple(replace(peer, build=fail, capture=None) for peer in module.PEERS))
    result = bench("ti/16", device="cpu", batch=2, rounds=2, actions=["inference of one"], quiet=True, **TINY)
    assert result.absent == {
        "timm": "not installed",
        "transformers": "it needs tokenizers, which is not installed",
        "vit-pytorch": "it cannot be imported: RuntimeError: made for another torch …",
        "torchvision (inference of one, eager)": "RuntimeError: cannot be built",
    }
    assert {(row.action, row.contestant) for row in result.rows} == {("inference of one", OURS)}
    with pytest.raises(UsageError, match="'sleep'"):
        bench("ti/16", device="cpu", actions=["sleep"])


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["cnn"], "no plain ViT"),
        (["ti/16", "--rounds", "1"], "at least 2"),
        (["--peers", "tim"], "unknown peer 'tim'"),
        (["b16"], "did you mean"),
    ],
)
def test_what_cannot_be_measured_is_one_line(arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", *arguments, "--device", "cpu"]) in (1, 2)
    assert hint in capsys.readouterr().err


def test_only_plain_vits_have_peers():
    with pytest.raises(UsageError, match="plain ViT"):
        bench("ti/16", device="cpu", qk_norm=True)
