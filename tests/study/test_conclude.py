from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from vitral.base.errors import UsageError
from vitral.build import build
from vitral.study.conclude import compare_pairs, conclude
from vitral.study.contenders import fit_model, fitting_vit, make_contenders
from vitral.study.table import Outcome, row

CELL = Outcome("c", "vit", 0, 1e-3, 0.9, 0.3, 0.9, 100, 100, 1e6, 100, 1.0, 100, "digits")


def rows(**accuracies: tuple[float, ...]):
    return [
        row([dataclasses.replace(CELL, model=name, seed=seed, accuracy=value) for seed, value in enumerate(values)])
        for name, values in accuracies.items()
    ]


def test_says_what_differs_what_does_not_and_what_it_cannot_say() -> None:
    rng = np.random.default_rng(0)
    correct = {"vit": rng.random((3, 1000)) < 0.8, "cnn": rng.random((3, 1000)) < 0.9, "hybrid": rng.random((3, 1000)) < 0.9}
    pairs = compare_pairs(correct)
    assert [pair.different for pair in pairs] == [True, True, False]
    assert all(pair.adjusted >= pair.p for pair in pairs)
    text = conclude(
        rows(**{name: tuple(c.mean(axis=1)) for name, c in correct.items()}),
        pairs,
        data="digits",
        budget="seconds=20",
        remarks=["The grid was small."],
        failed=1,
        shared=4,
    )
    assert "cnn is better than vit by" in text and "vit is better" not in text
    assert "Not told apart: cnn and hybrid" in text and "no proof that they are equal" in text
    assert "The grid was small." in text and "1 cell failed" in text and "Up to 4 cells shared" in text
    assert "This holds for digits, seconds=20" in text and "or pretrained weights" in text and "equally right" not in text


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        ({"vit": (0.9,), "cnn": (0.8,)}, "each model has one seed: nothing can be concluded"),
        ({"vit": (0.9, 0.8), "cnn": (0.8,)}, "some model has one seed: nothing can be concluded"),
        ({"vit": (0.9, 0.8)}, "vit reaches 85.00% on digits at samples=1; there is one model: nothing can be compared"),
    ],
)
def test_one_seed_or_one_model_concludes_nothing(accuracies: dict, words: str) -> None:
    assert words in conclude(rows(**accuracies), [], data="digits", budget="samples=1")


def test_a_description_says_that_it_is_one() -> None:
    made = [dataclasses.replace(found, interval=None) for found in rows(vit=(0.9, 0.9), cnn=(0.8, 0.7))]
    text = conclude(made, [], data="digits", budget="samples=1", claim=False)
    assert "but no test was asked for: nothing can be concluded" in text and "one seed" not in text and "interval" not in text


def test_an_interval_of_no_width_is_not_taken_for_certainty() -> None:
    text = conclude(rows(vit=(1.0, 1.0), cnn=(0.9, 0.8)), [], data="digits", budget="samples=1", pretrained=True)
    assert "All seeds of vit are equally right" in text
    assert "or other weights to start from" in text and "pretrained weights" not in text


@pytest.mark.parametrize(
    ("size", "patch", "tokens"),
    [((8, 8), 2, 16), ((28, 28), 4, 49), ((32, 32), 4, 64), ((64, 64), 8, 64), ((224, 224), 16, 197), ((32, 48), 4, 96)],
)
def test_vit_fits_the_picture(size: tuple[int, int], patch: int, tokens: int) -> None:
    config = fitting_vit("vit", size, 3, 10)
    assert config.patch_size == (patch, patch) and config.tokens == tokens


@pytest.mark.parametrize("size", [(8, 8), (32, 32)])
def test_positions_are_seen_from_the_first_step(size: tuple[int, int]) -> None:
    made = build(fit_model("vit", size, 1, 10))
    positions = torch.cat([parameter.flatten() for key, parameter in made.named_parameters() if "positions." in key]).detach()
    assert 0.8 < float(positions.std()) < 1.2


def test_sizes_are_ordered_and_rates_are_the_same_for_all() -> None:
    made = make_contenders(["vit-small", "vit", "vit-large", "cnn", "hybrid", "s/4"], (32, 32), 3, 10)
    assert made[0].flops < made[1].flops < made[2].flops
    assert len({contender.rates for contender in made}) == 1 and all(contender.note for contender in made)
    assert fit_model("cnn", (32, 32), 3, 10).family == "cnn"
    with pytest.raises(Exception, match="unknown model 'vitt'"):
        make_contenders(["vitt"], (32, 32), 3, 10)
    with pytest.raises(Exception, match="not among the models"):
        make_contenders(["vit"], (32, 32), 3, 10, weights={"cnn": "x"})


def test_contenders_from_weights_keep_their_own_size(tmp_path) -> None:
    from vitral.build import create
    from vitral.weights.checkpoint import save

    save(create("tiny"), tmp_path / "tiny")
    (made,) = make_contenders(["mine"], (8, 8), 1, 7, weights={"mine": str(tmp_path / "tiny")}, tune="head")
    assert made.model.image_size == (32, 32) and made.model.classes == 7 and made.weights and min(made.rates) == 1e-3
    (larger,) = make_contenders(["mine"], (64, 64), 1, 7, weights={"mine": str(tmp_path / "tiny")}, weights_size=(64, 64))
    assert larger.model.image_size == (64, 64) and larger.flops > made.flops
    with pytest.raises(UsageError, match="--tune head without weights"):
        make_contenders(["vit"], (8, 8), 1, 7, tune="head")


def test_a_rival_without_attention_has_the_same_rates_to_choose_from(tmp_path) -> None:
    from vitral.build import create
    from vitral.weights.checkpoint import save

    save(create("tiny"), tmp_path / "vit")
    save(create("resnet18", image_size=32, classes=5), tmp_path / "resnet")
    weights = {name: str(tmp_path / name) for name in ("vit", "resnet")}
    vit, resnet = make_contenders(["vit", "resnet"], (32, 32), 3, 5, weights=weights, tune="attention")
    assert (vit.tune, resnet.tune) == ("attention", "all") and vit.rates == resnet.rates
    assert "attention and head learn" in vit.note and "all parameters learn" in resnet.note
