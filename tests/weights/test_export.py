"""Out again (to_huggingface, to_onnx too): round trips are identities, real clients accept it, and what does not fit is refused."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.base.errors import UsageError, VitralError
from vitral.base.origin import Origin, fact
from vitral.build import create
from vitral.data.images.preprocess import Preprocess
from vitral.weights.export import export
from vitral.weights.load import load

NAMES = tuple(f"class number {i}" for i in range(7))


def made(name: str = "tiny", **changes):
    torch.manual_seed(0)
    model = create(name, **{"classes": 7, **changes})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    channels = model.config.channels
    model.origin = Origin(
        mean=fact((0.4, 0.5, 0.6)[:channels]),
        std=fact((0.2, 0.25, 0.3)[:channels]),
        resize=fact("short"),
        crop=fact(0.8),
        classes=fact(NAMES),
    )
    return model.eval()


# model changes → the formats that hold it exactly, tensor for tensor
HELD = {
    "plain": ({}, {"timm", "torchvision", "hf", "npz"}),
    "mean": ({"pool": "mean", "final_norm": False, "pool_norm": True}, {"timm"}),
    "distilled": ({"distillation_token": True}, {"timm", "hf"}),
    "registers": ({"registers": 4, "prefix_positions": "all"}, {"timm"}),
    "dinov2": ({"layer_scale": 0.5, "pool": "class+mean"}, {"hf"}),
    "dinov2-registers": ({"layer_scale": 0.5, "registers": 3, "pool": "class+mean"}, {"hf"}),
    "dinov2-giant": ({"layer_scale": 0.5, "pool": "class+mean", "activation": "swiglu", "mlp_width": 128}, {"hf"}),
    "clip": ({"embedding_norm": True, "patch_bias": False, "norm_epsilon": 1e-5, "head_bias": False, "activation": "quick_gelu"}, {"hf"}),
    "wide": ({"image_size": (32, 48)}, {"timm", "npz"}),
    "grey": ({"channels": 1}, {"timm", "hf", "npz"}),
    "hidden": ({"head_hidden": 16}, {"torchvision", "npz"}),
    "qk-norm": ({"qk_norm": True}, {"timm"}),
    "no-positions": ({"positions": "none"}, {"timm"}),
    "no-qkv-bias": ({"qkv_bias": False}, {"timm", "hf"}),
}
# held as the same function, with other parameters: zeros, sums, a table instead of a formula
SAME_FUNCTION = {
    "sincos": ({"positions": "sincos"}, {"timm", "torchvision", "hf", "npz"}),
    "registers-class": ({"registers": 4, "layer_scale": 0.5}, {"timm", "hf"}),
    "no-bias": ({"qkv_bias": False, "head_bias": False, "patch_bias": False}, {"torchvision", "timm"}),
}
NEVER = {
    "rms": {"norm": "rms"},
    "post": {"norm_order": "post"},
    "rotary": {"positions": "rotary"},
    "overlap": {"stride": 2},
    "attention-pool": {"pool": "attention"},
}
CASES = [(name, form) for name, (_, held) in HELD.items() for form in sorted(held)]


def back(path, model):
    activation = None if model.config.activation == "swiglu" else model.config.activation
    return load(path, heads=model.config.heads, activation=activation, image_size=model.config.image_size)


@pytest.mark.parametrize(("name", "form"), CASES)
def test_round_trips_are_identities(name, form, tmp_path) -> None:
    model = made(**HELD[name][0])
    again = back(export(model, tmp_path, form), model)
    theirs, ours = again.state_dict(), model.state_dict()
    assert list(theirs) == list(ours)
    assert all(torch.equal(theirs[key], ours[key]) for key in ours)
    images = torch.randn(2, model.config.channels, *model.config.image_size)
    same = dataclasses.replace(again.config, norm_epsilon=model.config.norm_epsilon, layer_scale=model.config.layer_scale)
    assert same == model.config
    if again.config.norm_epsilon == model.config.norm_epsilon:
        assert torch.equal(again(images), model(images))


def test_transformers_cuts_pictures_as_we_do_or_not_at_all(tmp_path) -> None:
    model = made()
    model.origin = dataclasses.replace(model.origin, crop=fact(0.9))
    processor = json.loads((export(model, tmp_path / "cut", "hf") / "preprocessor_config.json").read_text())
    assert processor["size"]["shortest_edge"] == Preprocess.of(model).resizing(100, 100).height == 35
    wide = made(image_size=(32, 48))
    wide.origin = dataclasses.replace(wide.origin, resize=fact("squash"))
    again = back(export(wide, tmp_path / "wide", "hf"), wide)
    images = torch.randn(2, 3, 32, 48)
    assert torch.equal(again(images), wide(images)) and Preprocess.of(again).resize == "squash"


@pytest.mark.parametrize("name", list(SAME_FUNCTION))
def test_other_parameters_of_the_same_function(name, tmp_path) -> None:
    changes, held = SAME_FUNCTION[name]
    model = made(**changes)
    images = torch.randn(2, 3, 32, 32)
    for form in held:
        again = back(export(model, tmp_path / form, form), model)
        assert (again(images) - model(images)).abs().max() <= 1e-5 * model(images).abs().max(), form


@pytest.mark.parametrize("name", [*HELD, *NEVER])
def test_what_a_format_cannot_hold_is_refused_and_nothing_is_written(name, tmp_path) -> None:
    changes, held = (HELD[name][0], HELD[name][1]) if name in HELD else (NEVER[name], set())
    model = made(**changes)
    close = SAME_FUNCTION["no-bias"][1] if name == "no-qkv-bias" else {"timm"} if name == "clip" else set()
    for form in {"timm", "torchvision", "hf", "npz"} - held - close:
        with pytest.raises(VitralError, match=r"cannot hold|no place|not fit|always|only|either|exactly one"):
            export(model, tmp_path / form, form)
        assert not (tmp_path / form).exists()


def test_rivals_and_wrong_formats(tmp_path) -> None:
    for form in ("timm", "hf", "npz", "torchvision"):
        with pytest.raises(UsageError, match="cnn"):
            export(made("cnn"), tmp_path, form)
    with pytest.raises(UsageError, match="format"):
        export(made(), tmp_path, "tflite")
    with pytest.raises(UsageError, match="outputs"):
        export(made(), tmp_path, "hf", attention=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file"):
        export(made(), tmp_path / "file", "timm")


def pictures() -> tuple[Image.Image, torch.Tensor]:
    random = np.random.default_rng(0)
    blurred = Image.fromarray(random.integers(0, 255, (12, 10, 3), dtype=np.uint8)).resize((70, 84))
    return blurred, torch.randn(3, 3, 32, 32)


def close(theirs: torch.Tensor, ours: torch.Tensor) -> None:
    assert torch.equal(theirs.argmax(1), ours.argmax(1))
    assert (theirs - ours).abs().max() <= 1e-4 * ours.abs().max()


@pytest.mark.parametrize("resize", ["short", "squash"])
def test_transformers_accepts_it(tmp_path, resize) -> None:
    import transformers

    model = made()
    model.origin = dataclasses.replace(model.origin, resize=fact(resize))
    path = export(model, tmp_path, "hf")
    client = transformers.pipeline("image-classification", model=str(path), device="cpu", function_to_apply="none")
    picture, images = pictures()
    answers = client(picture, top_k=7)
    with torch.no_grad():
        close(client.model(images).logits, model(images))
        ours = model(Preprocess.of(model).batch([picture]))[0]
    assert answers[0]["label"] == NAMES[int(ours.argmax())]
    # Their resizing works on tensors, ours on pictures: a rounding apart.
    assert {row["label"]: row["score"] for row in answers} == pytest.approx(
        {NAMES[i]: float(ours[i]) for i in range(7)}, abs=0.05 * float(ours.abs().max())
    )
    assert load(path).origin.classes == fact(NAMES, "config.json")


def test_timm_accepts_it(tmp_path) -> None:
    import timm

    model = made("ti/16", image_size=32)
    path = export(model, tmp_path, "timm")
    _, images = pictures()
    by_file = timm.create_model("vit_tiny_patch16_224", num_classes=7, img_size=32, checkpoint_path=str(path)).eval()
    by_folder = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    with torch.no_grad():
        close(by_file(images), model(images))
        close(by_folder(images), model(images))
    assert by_folder.pretrained_cfg["mean"] == [0.4, 0.5, 0.6] and by_folder.pretrained_cfg["label_names"] == list(NAMES)


def test_timm_reads_our_npz(tmp_path) -> None:
    import timm

    model = made("ti/16", image_size=32)
    path = export(model, tmp_path, "npz")
    client = timm.create_model("vit_tiny_patch16_224", num_classes=7, img_size=32, checkpoint_path=str(path)).eval()
    _, images = pictures()
    with torch.no_grad():
        close(client(images), model(images))


def test_torchvision_accepts_it(tmp_path) -> None:
    import torchvision

    sizes = {"image_size": 32, "patch_size": 4, "num_layers": 2, "num_heads": 3, "hidden_dim": 48, "mlp_dim": 96, "num_classes": 7}
    model, client = made(), torchvision.models.VisionTransformer(**sizes).eval()
    client.load_state_dict(torch.load(export(model, tmp_path, "torchvision"), weights_only=True))
    _, images = pictures()
    with torch.no_grad():
        close(client(images), model(images))
    rival, resnet = made("resnet18", image_size=96), torchvision.models.resnet18(num_classes=7).eval()
    resnet.load_state_dict(torch.load(export(rival, tmp_path / "resnet", "torchvision"), weights_only=True))
    images = torch.randn(2, 3, 96, 96)
    with torch.no_grad():
        assert torch.equal(resnet(images), rival(images))


@pytest.mark.slow
def test_vit_b_16_of_torchvision_accepts_it(tmp_path) -> None:
    import torchvision

    model = made("b/16", classes=1000)
    client = torchvision.models.vit_b_16().eval()
    client.load_state_dict(torch.load(export(model, tmp_path, "torchvision"), weights_only=True))
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        close(client(images), model(images))


MODERN = {
    "norm": "rms",
    "positions": "rotary",
    "qk_norm": True,
    "pool": "mean",
    "class_token": False,
    "qkv_bias": False,
    "image_size": (16, 16),
    "patch_size": (6, 6),
    "stride": (4, 4),
    "width": 24,
    "heads": 3,
    "depth": 2,
}
"""The architecture of the `cifar10` run, tiny."""


@pytest.mark.parametrize("format", ["timm", "hf", "torchvision", "npz"])
def test_a_model_that_no_other_library_holds_is_told_who_does(tmp_path, format) -> None:
    with pytest.raises(UsageError, match="norm = rms"):
        export(made(**MODERN), tmp_path / "out", format)
    assert not (tmp_path / "out").exists()


def test_such_a_model_is_converted_to_onnx(tmp_path, capsys) -> None:
    import onnxruntime

    from vitral.cli import main
    from vitral.weights.checkpoint import save

    model = made(**MODERN)
    save(model, tmp_path / "run")
    assert main(["weights", "convert", str(tmp_path / "run"), str(tmp_path / "out"), "--format", "onnx", "--attention"]) == 0
    session = onnxruntime.InferenceSession(capsys.readouterr().out.splitlines()[0], providers=["CPUExecutionProvider"])
    images = torch.randn(3, 3, 16, 16)
    with torch.no_grad():
        logits, *maps = session.run(None, {"images": images.numpy()})
        assert np.abs(logits - model(images).numpy()).max() <= 1e-4
    assert len(maps) == 2 and maps[0].shape == (3, 3, 16, 16) and np.allclose(maps[0].sum(axis=-1), 1, atol=1e-5)


GATED = {"sub_norm": "attention+mlp", "activation": "swiglu"}
VARIANTS = [
    {},
    {"positions": "learned+rotary", "rotary": "eva", "rotary_grid": (4, 4), "width": 32, "heads": 2, **GATED},
    {"positions": "rotary", "rotary": "mixed", "width": 32, "heads": 2},
    {"positions": "relative", "block": "parallel"},
    {"pool": "map", "class_token": False, "norm": "rms", "norm_order": "res-post", "patch_norm": True},
]


@pytest.mark.parametrize("changes", VARIANTS)
@pytest.mark.parametrize("attention", [False, True])
def test_onnx_runtime_accepts_it(tmp_path, attention, changes) -> None:
    import onnxruntime

    from vitral.model.tape import Tape

    model = made(depth=1, **changes)
    path = export(model, tmp_path, "onnx", attention=attention)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        images = torch.randn(batch, 3, 32, 32)
        outputs = session.run(None, {"images": images.numpy()})
        tape = Tape(model)
        with torch.no_grad():
            close(torch.from_numpy(outputs[0]), model(images, tape=tape))
        assert len(outputs) == (2 if attention else 1)
        if attention:
            assert session.get_outputs()[1].name == "attention_0"
            assert np.abs(outputs[1] - tape.attention(0).numpy()).max() <= 1e-5
    assert not model.training
