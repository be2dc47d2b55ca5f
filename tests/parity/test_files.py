"""The same weights as files, read back, compute the same.

from_timm, from_torchvision, from_huggingface, from_beit, from_siglip, from_dinov3.
"""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from vitral.base.errors import WeightsError
from vitral.weights.load import load
from vitral.weights.proof import prove

# What no key tells and the family's convention does not either: these tiny models have unusual widths.
OBLONG = {"image_size": (32, 48), "heads": 2}
ROTARY = (
    "eva02", "eva02-base", "eva02-clip", "dinov3", "dinov3-biased", "perception-core", "perception-spatial",
    "rope", "rope-registers", "rope-mixed", "sapiens2", "rope-mixed-learned",
)  # fmt: skip
TOLD = {
    "timm-non-square": {"image_size": (32, 48)},
    "hf-dinov3": {"heads": 2, "image_size": 32},
    "hf-dinov3-gated": {"heads": 2, "image_size": 32},
    "timm-clip": {"activation": "quick_gelu"},
    **{f"timm-{name}": OBLONG for name in ROTARY},
}
# What neither keys nor shapes tell, but timm's name of the architecture does.
NAMED = {
    "timm-res-post-norm": ("vit_base_patch16_rpn_224", {}),
    "timm-eva02-enormous": ("eva02_enormous_patch14_clip_224", OBLONG),
    "timm-rope-learned": ("vit_small_patch16_rope_ape_224", OBLONG),
    "timm-map-registers": ("test_vit3", {}),
}


def test_a_file_of_the_state_dict_computes_the_same(family, tiny, tmp_path) -> None:
    source = tiny(family)
    name, told = NAMED.get(family, ("weights", TOLD.get(family, {})))
    path = tmp_path / f"{name}.safetensors"
    save_file({name: tensor.clone() for name, tensor in source.state_dict().items()}, path)
    if family == "timm-no-positions":  # its keys are those of a rotary ViT
        with pytest.raises(WeightsError, match="learned"):
            load(path, heads=3, image_size=32)
        return
    heads = {} if family.startswith("resnet") else {"heads": 3}
    model = load(path, **{**heads, **told})
    if family == "hf-msn":  # its epsilon is not ViT's, which its keys are
        assert not model.origin.norm_epsilon.declared and model.origin.norm_epsilon.value != source.config.layer_norm_eps
        return
    inner = source.vit if family == "hf-mae" else source
    proof = prove(model, inner)
    assert proof.worst <= 1e-5, proof.table()
    assert not model.origin.mean.declared


@pytest.mark.parametrize(
    "name",
    [
        "hf-vit",
        "hf-deit-teacher",
        "hf-dinov2",
        "hf-dinov2-giant",
        "hf-dinov2-registers",
        "hf-clip",
        "hf-clip-projected",
        "hf-mae",
        "hf-ijepa",
        "hf-msn",
        "hf-dinov3",
        "hf-dinov3-gated",
        "hf-beit",
        "hf-beit-shared",
        "hf-data2vec",
        "hf-siglip",
        "hf-siglip-classifier",
    ],
)
def test_a_transformers_folder_needs_no_help(name, tiny, tmp_path) -> None:
    source = tiny(name)
    source.save_pretrained(tmp_path)
    model = load(tmp_path)
    proof = prove(model, source.vit if name == "hf-mae" else source)
    assert proof.worst <= 1e-5, proof.table()
    assert model.origin.heads.declared and model.origin.norm_epsilon.declared
    assert model.config.image_size == (32, 32)


def test_a_preprocessor_beside_the_weights_is_known(tiny, tmp_path) -> None:
    import transformers

    tiny("hf-dinov2").save_pretrained(tmp_path)
    transformers.BitImageProcessor(
        size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}, image_mean=[0.1, 0.2, 0.3]
    ).save_pretrained(tmp_path)
    origin = load(tmp_path).origin
    assert origin.mean.declared and origin.mean.value == (0.1, 0.2, 0.3)
    assert origin.resize.value == "short" and origin.crop.value == pytest.approx(32 / 36) and origin.interpolation.value == "bicubic"


def test_pickled_files_and_their_wrappers(tiny, tmp_path) -> None:
    source = tiny("timm")
    state = {f"module._orig_mod.{name}": tensor for name, tensor in source.state_dict().items()}
    noise = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    path = tmp_path / "checkpoint.pth"
    torch.save({"epoch": 3, "state_dict": noise, "state_dict_ema": state, "optimizer": {"lr": 0.1}}, path)
    model = load(path, heads=3)
    assert prove(model, source).worst <= 1e-5
    changes = " ".join(model.origin.changes)
    assert "state_dict_ema" in changes and "'module.'" in changes and "'_orig_mod.'" in changes


def test_old_pickles_are_read_too(tiny, tmp_path) -> None:
    source = tiny("torchvision")
    torch.save(source.state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert prove(load(tmp_path / "old.pth", heads=3), source).worst <= 1e-5
