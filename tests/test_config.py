"""Configs: checked when made, whole through JSON."""

import dataclasses
import json
import re

import pytest

from fuzz.confined import confined
from vitral.base.errors import ConfigError
from vitral.config import DataConfig, ModelConfig, PretrainConfig, RunConfig, TrainConfig, from_dict, to_dict
from vitral.presets.models import MODELS


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image_size": (30, 30), "patch_size": (4, 4)}, "image 30×30 is not divisible by patch 4: use image size 28 or 32"),
        ({"image_size": (32, 30), "patch_size": (4, 4)}, "use image size 32×28 or 32"),
        ({"image_size": (3, 3), "patch_size": (4, 4)}, "use image size 4"),
        ({"width": 100, "heads": 3}, "width 100 is not divisible by 3 heads: use 2 heads"),
        ({"class_token": False}, "pool = class needs a class token"),
        ({"pool": "mean", "distillation_token": True}, "distillation token goes with pool = class"),
        ({"positions": "rotary", "width": 18, "heads": 3}, "head width divisible by 4"),
        ({"positions": "sincos", "width": 18, "heads": 3}, "width divisible by 4"),
        ({"stride": (32, 32)}, "does not lie between 1 and patch 16×16"),
        ({"activation": "tanh"}, "activation = 'tanh' is unknown"),
        ({"depth": 0}, "depth = 0"),
        ({"dropout": 1.0}, "dropout = 1.0 is not a share"),
        ({"norm_epsilon": 0.0}, "not positive"),
        (
            {"family": "hybrid", "image_size": (36, 36), "patch_size": (2, 2)},
            "feature map 9×9 is not divisible by patch 2: use image size 32 or 40",
        ),
    ],
)
def test_impossible_models_are_refused_by_name(changes, words):
    with pytest.raises(ConfigError) as caught:
        ModelConfig(**changes)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        (TrainConfig, {"epochs": -1}, "epochs -1 is negative"),
        (TrainConfig, {"epochs": float("nan")}, "epochs = nan: use a finite number"),
        (TrainConfig, {"lr": float("inf")}, "lr = inf: use a finite number"),
        (TrainConfig, {"batch_size": 10, "accumulate": 3}, "cannot be split into 3 equal micro-batches"),
        (TrainConfig, {"weight_decay": -0.1}, "weight_decay -0.1 is negative"),
        (TrainConfig, {"clip": -1.0}, "clip -1.0 is not positive"),
        (TrainConfig, {"max_seconds": 0.0}, "max_seconds 0.0 is not positive"),
        (TrainConfig, {"patience": 0}, "patience = 0"),
        (TrainConfig, {"snapshots": -1}, "snapshots = -1"),
        (TrainConfig, {"lr": 0.0}, "learning rate must be positive"),
        (TrainConfig, {"ema": 1.0}, "ema 1.0"),
        (TrainConfig, {"warmup": 1.5}, "warmup = 1.5"),
        (TrainConfig, {"layer_decay": 0.0}, "layer_decay"),
        (TrainConfig, {"evaluate_every": 0}, "evaluate_every"),
        (DataConfig, {"validation": 1.0}, "validation 1.0 is not a share"),
        (DataConfig, {"subset": 0}, "subset 0"),
        (DataConfig, {"name": ""}, "no data set given"),
        (DataConfig, {"workers": -1}, "workers = -1"),
        (RunConfig, {"name": "a/b"}, "cannot be a folder name"),
    ],
)
def test_impossible_runs_are_refused_by_name(kind, changes, words):
    with pytest.raises(ConfigError) as caught:
        kind(**changes)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", sorted(name for name in MODELS if name != "h/32"))
def test_json_round_trip_is_an_identity(name):
    run = RunConfig(model=MODELS[name], train=TrainConfig(ema=0.9, milestones=(0.1, 0.2, 0.3)), data=DataConfig(mean=(0.5,)))
    assert from_dict(RunConfig, json.loads(json.dumps(to_dict(run)))) == run


def test_json_says_which_field_is_wrong():
    data = to_dict(RunConfig())
    data["train"]["epochs"] = "many"
    with pytest.raises(ConfigError, match=r"config\.train\.epochs"):
        from_dict(RunConfig, data)
    data = to_dict(RunConfig())
    data["model"]["colour"] = 3
    with pytest.raises(ConfigError, match="colour"):
        from_dict(RunConfig, data)
    with pytest.raises(ConfigError, match="object"):
        from_dict(RunConfig, [])  # type: ignore[arg-type]


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().width = 3  # type: ignore[misc]


def test_grid_prefix_and_tokens():
    config = ModelConfig(image_size=(64, 96), patch_size=(16, 16), registers=4, distillation_token=True)
    assert (config.grid, config.prefix, config.tokens) == ((4, 6), 6, 30)
    assert ModelConfig(image_size=(32, 32), patch_size=(4, 4), stride=(2, 2)).grid == (16, 16)
    assert ModelConfig(family="hybrid", image_size=(32, 48), patch_size=(1, 1)).grid == (8, 12)


@pytest.mark.parametrize("positions", ["rotary", "sincos"])
def test_tables_of_positions_are_bounded_before_they_are_made(positions: str) -> None:
    with pytest.raises(ConfigError, match=r"positions|numbers"):
        ModelConfig(image_size=(160_000, 160_000), positions=positions)
    with pytest.raises(ConfigError, match="positions"):
        ModelConfig(image_size=(8192, 8192), patch_size=(8, 8), positions=positions)
    with pytest.raises(ConfigError, match="positions"):
        ModelConfig(image_size=(32, 32), registers=10**9, positions=positions)
    assert ModelConfig(image_size=(1024, 1024), positions=positions).tokens == 4097


def test_a_width_of_a_thousand_million_is_refused_at_once() -> None:
    """Looking for a number of heads that divides it once went through all numbers below it."""
    ending = confined(lambda: ModelConfig(width=10**9 + 7, heads=3), seconds=5)
    assert ending.kind == "refused" and "is not divisible by 3 heads" in ending.message


def test_images_are_bounded_for_every_family() -> None:
    with pytest.raises(ConfigError, match="at most"):
        ModelConfig(family="resnet18", image_size=(10**6, 10**6))


@pytest.mark.parametrize(
    "make, told",
    [
        (lambda: TrainConfig(epochs="3"), "epochs = '3' is a word: give it as float"),
        (lambda: TrainConfig(lr="1e-3"), "lr = '1e-3' is a word: give it as float"),
        (lambda: TrainConfig(max_seconds="60"), "max_seconds = '60' is a word: give it as float | None"),
        (lambda: ModelConfig(image_size="224"), "image_size = '224' is a word: give it as tuple"),
    ],
)
def test_a_number_written_as_a_word_is_refused_by_name(make, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        make()


@pytest.mark.parametrize(
    "config, name",
    [
        (TrainConfig(betas=[0.9, 0.95]), "betas"),  # type: ignore[arg-type]
        (DataConfig(mean=[0.5], std=[0.2]), "mean"),  # type: ignore[arg-type]
        (PretrainConfig(global_scale=[0.4, 1.0]), "global_scale"),  # type: ignore[arg-type]
        (ModelConfig(patch_size=[4, 2]), "patch_size"),  # type: ignore[arg-type]
    ],
)
def test_lists_of_a_file_become_tuples(config, name: str) -> None:
    assert isinstance(getattr(config, name), tuple) and hash(config) is not None
