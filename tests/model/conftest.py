"""Every option of the model, drawn at random: what the property tests run over."""

import pytest
import torch
from hypothesis import strategies as st

from vitral.base.errors import ConfigError
from vitral.config import ModelConfig


@st.composite
def configs(draw):
    """A small ViT or hybrid with any combination of options that is possible."""
    heads = draw(st.sampled_from([1, 2, 3]))
    pool = draw(st.sampled_from(["class", "mean", "attention"]))
    patch = draw(st.sampled_from([(4, 4), (2, 4), (4, 2)]))
    family = draw(st.sampled_from(["vit", "vit", "vit", "hybrid"]))
    try:
        return ModelConfig(
            family=family,
            image_size=draw(st.sampled_from([(8, 8), (8, 16), (12, 8)])),
            patch_size=(1, 1) if family == "hybrid" else patch,
            stride=draw(st.sampled_from([None, (2, 2)])) if family == "vit" else None,
            channels=draw(st.sampled_from([1, 3, 5])),
            classes=draw(st.sampled_from([0, 4])),
            width=heads * draw(st.sampled_from([8, 12])),
            depth=draw(st.sampled_from([1, 3])),
            heads=heads,
            mlp_width=20,
            pool=pool,
            class_token=True if pool == "class" else draw(st.booleans()),
            distillation_token=draw(st.booleans()) if pool == "class" else False,
            registers=draw(st.sampled_from([0, 2])),
            positions=draw(st.sampled_from(["learned", "sincos", "rotary", "none"])),
            prefix_positions=draw(st.sampled_from(["all", "class", "none"])),
            norm=draw(st.sampled_from(["layer", "rms"])),
            norm_order=draw(st.sampled_from(["pre", "post"])),
            embedding_norm=draw(st.booleans()),
            final_norm=draw(st.booleans()),
            pool_norm=draw(st.booleans()),
            qk_norm=draw(st.booleans()),
            layer_scale=draw(st.sampled_from([None, 0.5])),
            activation=draw(st.sampled_from(["gelu", "gelu_tanh", "quick_gelu", "relu", "swiglu"])),
            qkv_bias=draw(st.booleans()),
            bias=draw(st.booleans()),
            patch_bias=draw(st.booleans()),
            head_bias=draw(st.booleans()),
            head_hidden=draw(st.sampled_from([0, 7])),
            dropout=draw(st.sampled_from([0.0, 0.3])),
            attention_dropout=draw(st.sampled_from([0.0, 0.3])),
            drop_path=draw(st.sampled_from([0.0, 0.3])),
            initialisation=draw(st.sampled_from(["vit", "torch"])),
            gradient_checkpointing=draw(st.booleans()),
        )
    except ConfigError as error:  # the strategy above must only draw what is possible
        pytest.fail(f"drew an impossible model: {error}")


def images_for(config: ModelConfig, batch: int = 2, seed: int = 0) -> torch.Tensor:
    return torch.randn(batch, config.channels, *config.image_size, generator=torch.Generator().manual_seed(seed))
