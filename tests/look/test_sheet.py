"""One sheet per picture, and methods by name."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from vitral import look
from vitral.look.method import RECORDS
from vitral.look.sheet import look_at


def test_sheet_holds_the_chosen_maps(make, tmp_path) -> None:
    model = make().float()
    pictures = [Image.new("RGB", (30, 20), "olive"), Image.new("L", (16, 16), 90)]
    written = look_at(model, pictures, tmp_path, methods=["rollout", "attention"], block=1, head=2, top=3)
    assert len(written) == 2 and len({path.name for path in written}) == 2
    facts = json.loads(written[0].with_suffix(".json").read_text())
    assert [one["method"] for one in facts["maps"]] == ["rollout", "attention"]
    assert facts["maps"][1]["block"] == 1 and facts["maps"][1]["head"] == 2
    assert len(facts["prediction"]) == 3
    with np.load(written[0].with_suffix(".npz")) as numbers:
        assert set(numbers.files) == {"rollout", "attention"}


def test_one_pass_serves_all_maps(make, images, monkeypatch, tmp_path) -> None:
    """One pass keeps what the methods read; relevance, gradient rollout and Grad-CAM share a backward pass, LeGrad needs one a block."""
    model = make().float()
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8))
    passes, backward = [], []
    model.register_forward_hook(lambda *_: passes.append(1))
    whole = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *args, **options: (backward.append(1), whole(*args, **options))[1])
    methods = [name for name, record in RECORDS.items() if name in look.METHODS and (record.attention or record.features)]
    (written,) = look_at(model, [picture], tmp_path / "all", methods=methods, target=2)
    assert len(passes) == 1
    backward.clear()
    look_at(model, [picture], tmp_path / "some", methods=["relevance", "gradient_rollout", "gradcam", "legrad"], target=2)
    assert len(backward) == 1 + len(model.blocks)
    tape = vitral.watch(model, picture, keep=["logits"])  # too little: each method watches again what it needs
    with np.load(written.with_suffix(".npz")) as numbers:
        for name in methods:
            np.testing.assert_allclose(numbers[name], look.METHODS[name](tape, target=2).grid, rtol=1e-4, atol=1e-6)


def test_an_option_is_used_noted_or_refused(make, tmp_path, capsys) -> None:
    model = make().float()
    (written,) = look_at(model, [Image.new("RGB", (16, 16), "olive")], tmp_path, methods=["rollout", "attention"], block=1, target=None)
    assert capsys.readouterr().err.strip() == "block = 1 is not used by rollout"
    notes = json.loads(written.with_suffix(".json").read_text())["notes"]
    assert notes == {"rollout": "rollout does not use block"}
    for options, words in (
        ({"head": 1}, r"head = 1 is used by none of rollout, similarity: leave it out, or add attention$"),
        ({"target": 2}, r"target = 2 is used by none of rollout, similarity: leave it out, or add gradient_rollout, relevance, legrad, "),
    ):
        with pytest.raises(vitral.VitralError, match=words):
            look_at(model, [Image.new("RGB", (16, 16))], tmp_path / "out", methods=["rollout", "similarity"], **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("top", [0, -2])
def test_no_classes_cannot_be_shown(make, tmp_path, top) -> None:
    model = make().float()
    with pytest.raises(vitral.VitralError, match=f"top = {top}"):
        look_at(model, [Image.new("RGB", (16, 16))], tmp_path / "out", methods=["rollout"], top=top)
    assert not (tmp_path / "out").exists()
