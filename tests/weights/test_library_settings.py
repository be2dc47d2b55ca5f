"""What other libraries' settings mean in our words."""

from __future__ import annotations

import pytest

from vitral.base.errors import WeightsError
from vitral.weights.library_settings import activation, of_preprocessor, of_timm_folder, of_timm_settings, of_transformers


def test_a_transformers_config() -> None:
    known = of_transformers(
        {"num_attention_heads": 3, "hidden_act": "gelu_new", "layer_norm_eps": 1e-12, "image_size": 32, "id2label": {"10": "b", "2": "a"}}
    )
    assert {name: fact.value for name, fact in known.config.items()} == {
        "heads": 3,
        "activation": "gelu_tanh",
        "norm_epsilon": 1e-12,
        "image_size": (32, 32),
    }
    assert known.origin["classes"].value == ("a", "b")  # by number, not by the letters of the number
    assert not of_transformers({"num_attention_heads": 3, "id2label": {"0": "LABEL_0"}}).origin
    assert not of_transformers({"model_type": "something"}).config
    inner = of_transformers({"vision_config": {"num_attention_heads": 5, "hidden_act": "quick_gelu"}})
    assert inner.config["heads"].value == 5 and inner.config["activation"].value == "quick_gelu"


@pytest.mark.parametrize(
    ("settings", "resize", "crop"),
    [
        ({"size": 224}, "squash", 1.0),
        ({"size": {"height": 224, "width": 224}}, "squash", 1.0),
        ({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True}, "short", 0.875),
        ({"size": 256, "crop_size": 224, "do_center_crop": True}, "short", 0.875),
        ({}, None, None),
    ],
)
def test_an_image_processor(settings, resize, crop) -> None:
    origin = of_preprocessor({**settings, "image_mean": [0.1, 0.2, 0.3], "resample": 2}).origin
    assert origin["mean"].value == (0.1, 0.2, 0.3) and origin["interpolation"].value == "bilinear" and "std" not in origin
    assert (origin["resize"].value if "resize" in origin else None) == resize
    assert (origin["crop"].value if "crop" in origin else None) == crop


def test_timms_settings() -> None:
    settings = {"mean": [0.5], "std": [0.5], "crop_pct": 0.9, "crop_mode": "squash", "interpolation": "bicubic"}
    named = of_timm_settings({**settings, "label_names": ["n01"], "label_descriptions": {"n01": "tench"}}).origin
    assert named["classes"].value == ("tench",) and named["resize"].value == "squash" and named["crop"].value == 0.9
    assert not of_timm_settings({}).origin
    folder = of_timm_folder({"model_args": {"num_heads": 3, "img_size": [32, 48], "global_pool": "avg"}, "pretrained_cfg": settings})
    assert (folder.config["heads"].value, folder.config["image_size"].value, folder.config["pool"].value) == (3, (32, 48), "mean")
    assert folder.origin["mean"].declared and folder.origin["mean"].note == "config.json"


def test_an_unknown_activation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(WeightsError, match="swish"):
        activation("swish", "x")
