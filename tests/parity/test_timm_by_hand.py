"""The architecture is ViT, not something like it: timm's random weights, copied by hand, give timm's logits."""

import timm
import torch

from vitral.build import create


def test_weights_of_timm_copied_by_hand_give_its_logits():
    torch.manual_seed(0)
    theirs = timm.create_model("vit_tiny_patch16_224", num_classes=11, img_size=(64, 96)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # fresh norms and biases are ones and zeros: a swap would not show
            parameter.add_(torch.randn_like(parameter) * 0.02)
    ours = create("ti/16", classes=11, image_size=(64, 96)).eval()
    source, state = theirs.state_dict(), {}
    state["patches.projection.weight"], state["patches.projection.bias"] = (
        source["patch_embed.proj.weight"],
        source["patch_embed.proj.bias"],
    )
    state["tokens.class_token"], state["positions.table"] = source["cls_token"], source["pos_embed"]
    for index in range(12):
        for mine, his in [
            ("norm1", "norm1"),
            ("attention.qkv", "attn.qkv"),
            ("attention.projection", "attn.proj"),
            ("norm2", "norm2"),
            ("mlp.expand", "mlp.fc1"),
            ("mlp.contract", "mlp.fc2"),
        ]:
            for kind in ("weight", "bias"):
                state[f"blocks.{index}.{mine}.{kind}"] = source[f"blocks.{index}.{his}.{kind}"]
    for mine, his in [("norm", "norm"), ("head.linear", "head")]:
        for kind in ("weight", "bias"):
            state[f"{mine}.{kind}"] = source[f"{his}.{kind}"]
    ours.load_state_dict(state)
    images = torch.randn(3, 3, 64, 96)
    with torch.no_grad():
        expected, got = theirs(images), ours(images)
    assert ((got - expected).abs().max() / expected.abs().max()).item() <= 1e-5
