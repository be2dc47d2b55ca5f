"""Names → modules."""

import pytest
import torch

from vitral.base.errors import UsageError
from vitral.build import create, models


@pytest.mark.parametrize("name", ["ti/16", "cnn", "resnet18", "resnet50", "hybrid", "report-mnist"])
def test_creates_on_the_meta_device(name):
    with torch.device("meta"):
        model = create(name, classes=7)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


def test_the_table_of_models_is_whole():
    table = models()
    assert table["b/16"] == {
        "family": "vit",
        "parameters": 86_567_656,
        "image_size": (224, 224),
        "patch_size": (16, 16),
        "width": 768,
        "depth": 12,
        "heads": 12,
    }
    assert table["cnn"]["parameters"] == 5_852_234
    assert {"ti/2", "s/4", "l/32", "h/14", "resnet152", "hybrid"} <= set(table)


def test_unknown_model():
    with pytest.raises(UsageError, match="'vit'"):
        create("vit")


def test_a_created_model_knows_what_its_config_says():
    origin = create("tiny", activation="quick_gelu", norm_epsilon=1e-5).origin
    assert (origin.activation.value, origin.norm_epsilon.value, origin.heads.value) == ("quick_gelu", 1e-5, 3)
    assert create("cnn").origin.heads.value == 0
