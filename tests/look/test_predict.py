"""Ranked classes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from vitral.base.origin import fact


def test_ranks_as_softmax_does(make, images) -> None:
    model = make(dropout=0.5).train()
    model.origin = dataclasses.replace(model.origin, classes=fact(("ant", "bee", "cat", "dog", "eel")))
    batch = images(model, 3)
    rankings = vitral.predict(model, batch, top=2)
    assert model.training
    logits = model.eval()(batch)
    assert len(rankings) == 3
    for row, ranking in zip(logits, rankings, strict=True):
        order = row.argsort(descending=True)[:2].tolist()
        assert [name for name, _ in ranking] == [("ant", "bee", "cat", "dog", "eel")[index] for index in order]
        np.testing.assert_allclose([share for _, share in ranking], row.softmax(0)[order].detach().numpy(), atol=1e-9)
        np.testing.assert_allclose(ranking.logits, row[order].detach().numpy(), atol=1e-9)
        assert ranking.indices == order
    assert len(vitral.predict(model, batch, top=99)[0]) == 5
    assert rankings[0].to_dict()["classes"][0].keys() == {"class", "index", "probability", "logit"}
    logits, probabilities = rankings[0].draw("title").axes
    assert [bar.get_width() for bar in logits.patches] == rankings[0].logits
    assert [bar.get_width() for bar in probabilities.patches] == pytest.approx([100 * share for _, share in rankings[0]])
    assert [label.get_text() for label in logits.get_yticklabels()] == [name for name, _ in rankings[0]]


def test_takes_what_watch_takes(make) -> None:
    model = make().float()
    picture = Image.new("RGB", (20, 30), "teal")
    one, many, tensor = (
        vitral.predict(model, picture),
        vitral.predict(model, [picture, picture]),
        vitral.predict(model, torch.zeros(3, 16, 16)),
    )
    assert len(one) == len(tensor) == 1 and len(many) == 2
    np.testing.assert_allclose(one[0].logits, many[1].logits, atol=1e-5)
    assert one[0][0][0].startswith("class ")


def test_bad_input_is_one_line(make) -> None:
    model = make().float()
    for pictures, options, words in (
        ([], {}, "no pictures"),
        (torch.zeros(1, 3, 16, 16), {"top": 0}, "top = 0"),
        (torch.zeros(1, 1, 16, 16), {}, "takes images of"),
    ):
        with pytest.raises(vitral.VitralError) as caught:
            vitral.predict(model, pictures, **options)
        assert words in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(vitral.VitralError, match="no head"):
        vitral.predict(make(classes=0), torch.zeros(1, 3, 16, 16))


def test_a_ranking_is_a_table_in_a_notebook(make, images) -> None:
    model = make()
    (ranking, *_) = vitral.predict(model, images(model), top=2)
    shown = ranking._repr_html_()
    assert "<th>class</th><th>probability</th><th>logit</th>" in shown and shown.count("<tr>") == 3
    assert f"<td>{ranking[0][0]}</td><td>{100 * ranking[0][1]:.1f} %</td>" in shown
