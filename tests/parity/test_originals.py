"""Files in the layouts of the original repositories, built here from the libraries' own models, name by name."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vitral.base.errors import WeightsError
from vitral.build import create
from vitral.weights import from_google
from vitral.weights.keymap import revert
from vitral.weights.load import load
from vitral.weights.proof import prove


def state_of(module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def test_dino_teacher_with_its_head(tiny, tmp_path) -> None:
    source = tiny("timm-backbone")
    state = {f"backbone.{name}": tensor for name, tensor in state_of(source).items()}
    state |= {
        "head.mlp.0.weight": torch.zeros(8, 24),
        "head.last_layer.weight_g": torch.zeros(9, 1),
        "head.last_layer.weight_v": torch.zeros(9, 8),
    }
    torch.save(
        {"student": {"module." + k: torch.zeros_like(v) for k, v in state.items()}, "teacher": state, "epoch": 1}, tmp_path / "dino.pth"
    )
    model = load(tmp_path / "dino.pth", heads=3)
    assert prove(model, source).worst <= 1e-5
    assert model.config.classes == 0 and "'teacher'" in " ".join(model.origin.changes)
    assert model.origin.mean.value == (0.485, 0.456, 0.406) and not model.origin.mean.declared


@pytest.mark.parametrize("chunked", [False, True])
def test_dinov2_with_registers_and_gated_mlp(tiny, tmp_path, chunked) -> None:
    # timm adds the class token's position to the token; the original keeps it in the table.
    source = tiny("timm-dinov2-giant")
    state = state_of(source)
    position = torch.randn(1, 1, 24)
    state["pos_embed"] = torch.cat([position, state["pos_embed"]], dim=1)
    state["cls_token"] = state["cls_token"] - position
    state["register_tokens"] = state.pop("reg_token")
    state["mask_token"] = torch.zeros(1, 24)
    state = {name.replace("mlp.fc1", "mlp.w12").replace("mlp.fc2", "mlp.w3"): tensor for name, tensor in state.items()}
    if chunked:
        state = {re.sub(r"^blocks\.(\d+)", r"blocks.0.\1", name): tensor for name, tensor in state.items()}
    torch.save(state, tmp_path / "dinov2.pth")
    model = load(tmp_path / "dinov2.pth", heads=3)
    assert prove(model, source).worst <= 1e-5
    assert model.config.registers == 4 and model.config.activation == "swiglu" and model.config.prefix_positions == "class"


@pytest.mark.parametrize("kind", ["timm-dinov3", "timm-dinov3-biased"])
def test_dinov3_as_its_repository_saves_it(tiny, tmp_path, kind) -> None:
    source = tiny(kind)
    renamed = {"reg_token": "storage_tokens", "gamma_": "ls", "fc1_g": "w1", "fc1_x": "w2"}
    state = {"mask_token": torch.zeros(1, 24), "rope_embed.periods": torch.ones(3)}
    gated = any("fc1_g" in name for name in source.state_dict())
    for name, tensor in state_of(source).items():
        if name.startswith("head.") or name.endswith((".q_bias", ".v_bias")):
            continue
        for theirs, original in renamed.items():
            name = name.replace(theirs, original)
        name = re.sub(r"\.ls(\d)$", r".ls\1.gamma", name)
        state[name.replace("fc2", "w3") if gated else name] = tensor
    for index, block in enumerate(source.blocks):
        if block.attn.q_bias is not None:  # the original has a bias for keys too, and masks it away
            bias = torch.cat([block.attn.q_bias.detach(), torch.ones(24), block.attn.v_bias.detach()])
            state |= {f"blocks.{index}.attn.qkv.bias": bias, f"blocks.{index}.attn.qkv.bias_mask": torch.ones(72)}
    save_file(state, tmp_path / "dinov3.safetensors")
    model = load(tmp_path / "dinov3.safetensors", heads=2, image_size=(32, 48))
    source.reset_classifier(0, "token")
    assert prove(model, source).worst <= 1e-5
    assert model.config.rotary == "dinov3" and model.config.registers == 4


ORIGINAL_EVA = (
    ("mlp.norm", "mlp.ffn_ln"),
    ("attn.norm", "attn.inner_attn_ln"),
    ("mlp.fc1_g", "mlp.w1"),
    ("mlp.fc1_x", "mlp.w2"),
    ("_proj.bias", "_bias"),
)


@pytest.mark.parametrize(("kind", "tower"), [("timm-eva02", ""), ("timm-eva02-base", ""), ("timm-eva02-clip", "visual.")])
def test_eva02_as_its_repository_saves_it(tiny, tmp_path, kind, tower) -> None:
    source, state = tiny(kind), {}
    for name, tensor in state_of(source).items():
        for theirs, original in ORIGINAL_EVA:
            name = name.replace(theirs, original)
        state[tower + name.replace("fc2", "w3")] = tensor
    width = source.embed_dim // source.blocks[0].attn.num_heads
    state |= {f"{tower}rope.freqs_cos": torch.ones(16, width), f"{tower}blocks.0.attn.rope.freqs_sin": torch.ones(16, width)}
    if tower:
        state |= {"text.token_embedding.weight": torch.zeros(9, 8), "logit_scale": torch.tensor(1.0)}
    save_file(state, tmp_path / "eva02.safetensors")
    model = load(tmp_path / "eva02.safetensors", heads=source.blocks[0].attn.num_heads, image_size=(32, 48))
    assert prove(model, source).worst <= 1e-5
    assert model.config.rotary == "eva" and "EVA-02, original layout" in model.origin.source.value


def test_eva_with_its_pretraining_head(tiny, tmp_path) -> None:
    source = tiny("timm-eva")
    state = state_of(source) | {"lm_head.weight": torch.zeros(8, 24), "lm_head.bias": torch.zeros(8), "mask_token": torch.zeros(1, 1, 24)}
    torch.save({"module": state}, tmp_path / "eva.pt")
    heads = source.blocks[0].attn.num_heads
    assert prove(load(tmp_path / "eva.pt", heads=heads), source).worst <= 1e-5


def test_mae_with_its_decoder(tiny, tmp_path) -> None:
    source = tiny("timm-backbone")
    state = state_of(source) | {
        "mask_token": torch.zeros(1, 1, 16),
        "decoder_pos_embed": torch.zeros(1, 17, 16),
        "decoder_embed.weight": torch.zeros(16, 24),
        "decoder_embed.bias": torch.zeros(16),
        "decoder_blocks.0.attn.qkv.weight": torch.zeros(48, 16),
        "decoder_norm.weight": torch.zeros(16),
        "decoder_pred.weight": torch.zeros(192, 16),
    }
    torch.save({"model": state}, tmp_path / "mae.pth")
    assert prove(load(tmp_path / "mae.pth", heads=3), source).worst <= 1e-5


def test_openai_clip_with_its_text_tower(tiny, tmp_path) -> None:
    source = tiny("hf-clip-projected")
    theirs = state_of(source)
    state = {
        "visual.class_embedding": theirs["vision_model.embeddings.class_embedding"],
        "visual.positional_embedding": theirs["vision_model.embeddings.position_embedding.weight"],
        "visual.conv1.weight": theirs["vision_model.embeddings.patch_embedding.weight"],
        "visual.proj": theirs["visual_projection.weight"].T.contiguous(),
        "positional_embedding": torch.zeros(7, 8),
        "text_projection": torch.zeros(8, 8),
        "token_embedding.weight": torch.zeros(9, 8),
        "transformer.resblocks.0.ln_1.weight": torch.zeros(8),
        "ln_final.weight": torch.zeros(8),
        "logit_scale": torch.tensor(1.0),
    }
    for ours, name in (("ln_pre", "pre_layrnorm"), ("ln_post", "post_layernorm")):
        state |= {f"visual.{ours}.{part}": theirs[f"vision_model.{name}.{part}"] for part in ("weight", "bias")}
    for block in range(2):
        before, after = f"vision_model.encoder.layers.{block}.", f"visual.transformer.resblocks.{block}."
        for part in ("weight", "bias"):
            joined = [theirs[f"{before}self_attn.{kind}_proj.{part}"] for kind in "qkv"]
            state[f"{after}attn.in_proj_{part}"] = torch.cat(joined)
            for name, ours in (
                ("self_attn.out_proj", "attn.out_proj"),
                ("layer_norm1", "ln_1"),
                ("layer_norm2", "ln_2"),
                ("mlp.fc1", "mlp.c_fc"),
                ("mlp.fc2", "mlp.c_proj"),
            ):
                state[f"{after}{ours}.{part}"] = theirs[f"{before}{name}.{part}"]
    save_file(state, tmp_path / "clip.safetensors")
    model = load(tmp_path / "clip.safetensors", heads=3)
    assert prove(model, source).worst <= 1e-5
    assert model.config.activation == "quick_gelu" and not model.origin.activation.declared
    assert model.config.classes == 16 and not model.config.head_bias


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("prefix", ["", "opt/target/"])
def test_google_npz_as_timm_reads_it(tiny, tmp_path, hidden, prefix) -> None:
    source = tiny("timm")
    random = np.random.default_rng(0)
    width, heads, mlp = 24, 3, 96

    def fresh(*shape: int) -> np.ndarray:
        return (0.2 * random.standard_normal(shape)).astype(np.float32)

    arrays = {
        "embedding/kernel": fresh(8, 8, 3, width),
        "embedding/bias": fresh(width),
        "cls": fresh(1, 1, width),
        "Transformer/posembed_input/pos_embedding": fresh(1, 17, width),
        "Transformer/encoder_norm/scale": fresh(width),
        "Transformer/encoder_norm/bias": fresh(width),
        "head/kernel": fresh(width, 5),
        "head/bias": fresh(5),
    }
    for block in range(2):
        layer = f"Transformer/encoderblock_{block}/"
        for norm in ("LayerNorm_0", "LayerNorm_2"):
            arrays |= {f"{layer}{norm}/scale": fresh(width), f"{layer}{norm}/bias": fresh(width)}
        for part in ("query", "key", "value"):
            name = f"{layer}MultiHeadDotProductAttention_1/{part}"
            arrays |= {f"{name}/kernel": fresh(width, heads, width // heads), f"{name}/bias": fresh(heads, width // heads)}
        name = f"{layer}MultiHeadDotProductAttention_1/out"
        arrays |= {f"{name}/kernel": fresh(heads, width // heads, width), f"{name}/bias": fresh(width)}
        arrays |= {f"{layer}MlpBlock_3/Dense_0/kernel": fresh(width, mlp), f"{layer}MlpBlock_3/Dense_0/bias": fresh(mlp)}
        arrays |= {f"{layer}MlpBlock_3/Dense_1/kernel": fresh(mlp, width), f"{layer}MlpBlock_3/Dense_1/bias": fresh(width)}
    np.savez(tmp_path / "vit.npz", **{prefix + name: array for name, array in arrays.items()})
    source.load_pretrained(str(tmp_path / "vit.npz"))
    if hidden:  # the pre-training head of the paper, which timm leaves out
        arrays |= {"pre_logits/kernel": np.eye(width, dtype=np.float32), "pre_logits/bias": np.zeros(width, np.float32)}
        np.savez(tmp_path / "vit.npz", **{prefix + name: array for name, array in arrays.items()})
    model = load(tmp_path / "vit.npz")
    assert model.config.heads == 3 and model.origin.heads.declared
    proof = prove(model, source)
    if hidden:
        assert model.config.head_hidden == width
        assert all(proof.figures()[layer] <= 1e-5 for layer in ("embedding", "blocks.0", "blocks.1"))
    else:
        assert proof.worst <= 1e-5, proof.table()


def test_a_stray_key_is_not_overlooked(tiny, tmp_path) -> None:
    state = state_of(tiny("timm")) | {"blocks.0.attn.extra.weight": torch.zeros(3)}
    save_file(state, tmp_path / "stray.safetensors")
    with pytest.raises(WeightsError, match=r"blocks\.0\.attn\.extra\.weight"):
        load(tmp_path / "stray.safetensors", heads=3)
    del state["blocks.0.attn.extra.weight"], state["blocks.1.norm2.bias"]
    save_file(state, tmp_path / "short.safetensors")
    with pytest.raises(WeightsError, match=r"blocks\.1\.norm2\.bias"):
        load(tmp_path / "short.safetensors", heads=3)


@pytest.mark.parametrize("gap", [False, True])
def test_big_vision_npz_as_timm_reads_it(tmp_path, gap) -> None:
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    changes = {"pool": "mean", "class_token": False} if gap else {"prefix_positions": "none"}
    model = create("tiny", classes=5, **changes).eval()
    arrays = revert(from_google.BIG_VISION, model.state_dict(), 3, "big_vision")
    np.savez(tmp_path / "big.npz", **{f"params/{name}": tensor.numpy() for name, tensor in arrays.items()})
    pooling = {"global_pool": "avg", "fc_norm": False, "class_token": False} if gap else {"no_embed_class": True}
    source = VisionTransformer(img_size=32, patch_size=4, embed_dim=48, depth=2, num_heads=3, mlp_ratio=2, num_classes=5, **pooling)
    source.load_pretrained(str(tmp_path / "big.npz"))
    again = load(tmp_path / "big.npz")
    assert prove(again, source).worst <= 1e-5
    assert again.config.prefix_positions in ("none", "class") and again.config.pool == model.config.pool


@pytest.mark.parametrize("stacked", [False, True])
def test_siglip_npz_as_timm_reads_it(tmp_path, stacked) -> None:
    """Both towers in one file, as big_vision writes them; its GELU is the tanh form."""
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    model = create("tiny", classes=0, pool="map", class_token=False, activation="gelu_tanh").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    arrays = {name: tensor.numpy() for name, tensor in revert(from_google.SIGLIP, model.state_dict(), 3, "big_vision").items()}
    if stacked:
        first = [name for name in arrays if "/encoderblock_0/" in name]
        whole = {name.replace("_0/", "/", 1): np.stack([arrays[name], arrays[name.replace("_0/", "_1/", 1)]]) for name in first}
        arrays = {name: array for name, array in arrays.items() if "/encoderblock_" not in name} | whole
    arrays = {f"params/img/{name}": array for name, array in arrays.items()}
    arrays |= {"params/txt/Embed_0/embedding": np.zeros((9, 8), np.float32), "params/t": np.ones(1), "params/b": np.ones(1)}
    np.savez(tmp_path / "siglip.npz", **arrays)
    source = VisionTransformer(
        img_size=32,
        patch_size=4,
        embed_dim=48,
        depth=2,
        num_heads=3,
        mlp_ratio=2,
        num_classes=0,
        class_token=False,
        global_pool="map",
        act_layer="gelu_tanh",
    ).eval()
    source.load_pretrained(str(tmp_path / "siglip.npz"), prefix="params/img/")
    again = load(tmp_path / "siglip.npz")
    assert prove(again, source).worst <= 1e-5
    assert again.config.activation == "gelu_tanh" and again.config.heads == 3 and again.origin.heads.declared


@pytest.mark.parametrize(
    ("kind", "name", "head"),
    [("timm", "head", "head.1"), ("timm", "head", "fc"), ("torchvision", "heads.head", "heads.0"), ("torchvision", "heads.head", "heads")],
)
def test_heads_of_fine_tuning_scripts(tiny, tmp_path, kind, name, head) -> None:
    source = tiny(kind)
    state = {re.sub(rf"^{re.escape(name)}\.(weight|bias)$", rf"{head}.\1", key): tensor for key, tensor in state_of(source).items()}
    assert f"{head}.weight" in state
    torch.save(state, tmp_path / "tuned.pth")
    assert prove(load(tmp_path / "tuned.pth", heads=3), source).worst <= 1e-5


def test_a_name_is_a_better_guess_than_none(tiny, tmp_path) -> None:
    save_file(state_of(tiny("timm-deit")), tmp_path / "deit_tiny.safetensors")
    origin = load(tmp_path / "deit_tiny.safetensors", heads=3).origin
    assert origin.mean.value == (0.485, 0.456, 0.406) and not origin.mean.declared and "deit" in origin.mean.note
