"""One sheet per picture, and methods by name."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

import vitral
from vitral import look
from vitral.look.sheet import call, check_methods, look_at


def test_functions_keep_their_names() -> None:
    import vitral.look.relevance
    import vitral.look.rollout

    for name, function in {**look.METHODS, **look.MEASURES}.items():
        assert getattr(vitral.look, name) is function and callable(function)
    assert callable(look.predict) and callable(look.watch)


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


def test_methods_by_name(make, images) -> None:
    model = make()
    assert "rollout" in check_methods(model, [])
    assert check_methods(model, ["gradient-rollout"]) == ["gradient_rollout"]
    assert "rollout" not in check_methods(vitral.create("cnn"), ())
    assert set(check_methods(make(classes=0), ())) <= {"attention", "rollout", "similarity", "norms"}
    with pytest.raises(vitral.VitralError, match=r"unknown method 'rolout'.*did you mean rollout"):
        check_methods(model, ["rolout"])
    heat = call("rollout", vitral.watch(model, images(model)), 1, block=2, target=None, heads="max")
    assert heat.head == "max" and heat.item == 1


@pytest.mark.parametrize("top", [0, -2])
def test_no_classes_cannot_be_shown(make, tmp_path, top) -> None:
    model = make().float()
    with pytest.raises(vitral.VitralError, match=f"top = {top}: ask for at least one class"):
        look_at(model, [Image.new("RGB", (16, 16))], tmp_path / "out", methods=["rollout"], top=top)
    assert not (tmp_path / "out").exists()
