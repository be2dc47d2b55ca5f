"""Names become models that fit the data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from vitral.base.errors import UsageError
from vitral.build import build, create, shadow
from vitral.config import DataConfig
from vitral.data.splits.open import Data, open_data
from vitral.study.fight import contenders
from vitral.study.fight.contenders import LRS, describe, fit_model, fitting_vit, has_batch_norm, matched, templates
from vitral.study.fight.experiment import Budget, Contender, Experiment, tuning_cells
from vitral.weights.checkpoint import save


def make_contenders(
    names: Sequence[str], opened: Data, *, recipe: str = "plain", tune: str = "all", **options: Any
) -> tuple[Contender, ...]:
    return contenders.make_contenders(names, opened, templates("digits", recipe, tune=tune), **options)


DATA = open_data(DataConfig(name="digits"), image_size=32, channels=3)


@pytest.mark.parametrize(
    ("size", "patch", "tokens"),
    [((8, 8), 2, 16), ((28, 28), 4, 49), ((32, 32), 4, 64), ((64, 64), 8, 64), ((224, 224), 16, 197), ((32, 48), 4, 96)],
)
def test_a_vit_fits_the_image(size: tuple[int, int], patch: int, tokens: int) -> None:
    config = fitting_vit("vit", size, 3, 10)
    assert config.patch_size == (patch, patch) and config.tokens == tokens


@pytest.mark.parametrize("size", [(8, 8), (32, 32)])
def test_positions_are_seen_from_the_first_step(size: tuple[int, int]) -> None:
    made = build(fit_model("vit", size, 1, 10))
    positions = torch.cat([parameter.flatten() for key, parameter in made.named_parameters() if "positions." in key]).detach()
    assert 0.8 < float(positions.std()) < 1.2


def test_sizes_are_ordered_and_learning_rates_are_the_same_for_all() -> None:
    made = make_contenders(["vit-small", "vit", "vit-large", "cnn", "hybrid", "s/4"], DATA)
    assert made[0].flops < made[1].flops < made[2].flops
    assert len({contender.lrs for contender in made}) == 1 and all(contender.note for contender in made)
    assert fit_model("cnn", (32, 32), 3, 10).family == "cnn"
    with pytest.raises(Exception, match="'vitt'"):
        make_contenders(["vitt"], DATA)
    with pytest.raises(Exception, match="among"):
        make_contenders(["vit"], DATA, weights={"cnn": "x"})


def test_contenders_from_weights_keep_their_own_size(tmp_path: Path) -> None:
    save(create("tiny"), tmp_path / "tiny")
    grey = open_data(DataConfig(name="digits"))
    (made,) = make_contenders(["mine"], grey, weights={"mine": str(tmp_path / "tiny")}, tune="head")
    assert made.run.model.image_size == (32, 32) and made.run.model.classes == 10 and made.run.weights and min(made.lrs) == 1e-3
    (larger,) = make_contenders(["mine"], grey, weights={"mine": str(tmp_path / "tiny")}, weights_size=(64, 64))
    assert larger.run.model.image_size == (64, 64) and larger.flops > made.flops
    with pytest.raises(UsageError, match="--tune"):
        make_contenders(["vit"], DATA, tune="head")


def test_a_rival_without_attention_has_the_same_learning_rates_to_choose_from(tmp_path: Path) -> None:
    save(create("tiny"), tmp_path / "vit")
    save(create("resnet18", image_size=32, classes=5), tmp_path / "resnet")
    weights = {name: str(tmp_path / name) for name in ("vit", "resnet")}
    vit, resnet = make_contenders(["vit", "resnet"], DATA, weights=weights, tune="attention")
    assert (vit.run.train.tune, resnet.run.train.tune) == ("attention", "all") and vit.lrs == resnet.lrs
    assert "attention and head learn" in vit.note and "all parameters learn" in resnet.note
    vit, resnet = make_contenders(["vit", "resnet"], DATA, weights=weights, tune="lora")
    assert (vit.run.train.tune, resnet.run.train.tune) == ("lora", "all") and vit.note.endswith("LoRA and head learn")


def test_contenders_say_what_they_are() -> None:
    vit, cnn = make_contenders(["vit", "cnn"], DATA)
    assert "65 tokens" in describe(fit_model("report-cifar", (32, 32), 3, 10)) and "64 tokens" in vit.note and "small CNN" in cnn.note
    assert has_batch_norm(cnn.run.model) and not has_batch_norm(vit.run.model)


def test_what_cannot_be_chosen_is_refused() -> None:
    without = open_data(DataConfig(name="digits", validation=0.0))
    with pytest.raises(UsageError, match="validation"):
        make_contenders(["vit"], without)
    assert make_contenders(["vit"], without, lrs=[1e-3])[0].lrs == (1e-3,)


def test_every_recipe_makes_a_contender_with_learning_rates_of_its_optimizer():
    data = DATA
    made = make_contenders(["vit", "cnn"], data, recipe="plain,strong")
    assert [contender.name for contender in made] == ["vit plain", "vit strong", "cnn plain", "cnn strong"]
    assert [contender.base for contender in made] == ["vit", "vit", "cnn", "cnn"]
    assert made[0].lrs == LRS["adamw"] and made[1].lrs == LRS["muon"] and all(contender.widens for contender in made)
    assert made[1].starts == ("torch", "zero") and made[3].starts == () and "strong recipe" in made[3].note
    study = Experiment("compare", made, Budget("samples", 20_000), images=len(data.train))
    cells = {(cell.contender, cell.lr, cell.run.model.initialisation): cell.run for cell in tuning_cells(study)}
    strong, plain = cells["vit strong", 0.04, "zero"], cells["vit plain", 1e-3, "torch"]
    assert (strong.train.optimizer, strong.train.adam_lr, strong.train.ema, strong.data.augment) == ("muon", 0.004, 0.99, "strong")
    assert (plain.train.optimizer, plain.train.ema, plain.data.augment) == ("adamw", None, "standard")
    (own,) = make_contenders(["vit"], data, lrs=[1e-3])
    assert own.starts == ("torch",) and not own.widens and own.name == "vit"


@pytest.mark.parametrize("what", ["parameters", "flops"])
def test_a_model_can_be_made_as_large_as_another(what: str):
    data = DATA
    first, *made = make_contenders(["cnn", f"vit@{what}", f"hybrid@{what}"], data)

    def size(contender: Contender) -> float:
        return contender.flops if what == "flops" else sum(value.numel() for value in shadow(contender.run.model).parameters())

    assert all(abs(math.log(size(contender) / size(first))) < 0.1 for contender in made)
    assert matched(first.run.model, first.run.model, what) == first.run.model
    with pytest.raises(UsageError, match=f"cnn@{what}"):
        make_contenders(["cnn", f"cnn@{what}"], data)
    with pytest.raises(UsageError, match="width"):
        make_contenders(["vit", f"resnet18@{what}"], data)
    with pytest.raises(UsageError, match="match"):
        make_contenders([f"vit@{what}"], data)
    with pytest.raises(UsageError, match="'depth'"):
        make_contenders(["vit", "cnn@depth"], data)


def test_a_model_is_matched_to_the_weights_that_the_first_one_starts_from(tmp_path: Path):
    wide = dataclasses.replace(fit_model("vit", DATA.image_size, DATA.channels, 7), width=128, mlp_width=256)
    save(build(wide), tmp_path / "wide")
    first, rival = make_contenders(["vit", "cnn@parameters"], DATA, weights={"vit": str(tmp_path / "wide")})
    assert first.run.model.width == 128
    sizes = [sum(value.numel() for value in shadow(contender.run.model).parameters()) for contender in (first, rival)]
    assert abs(math.log(sizes[1] / sizes[0])) < 0.1
    again = make_contenders(["vit", "vit@parameters"], DATA, weights={"vit": str(tmp_path / "wide")})[1]
    assert abs(math.log(sum(value.numel() for value in shadow(again.run.model).parameters()) / sizes[0])) < 0.1, "from scratch, as large"
    with pytest.raises(UsageError, match="weights"):
        make_contenders(["cnn", "vit@flops"], DATA, weights={"vit@flops": str(tmp_path / "wide")})
