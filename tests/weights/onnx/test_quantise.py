"""The int8 graph: a scale per token, pixels exact, and it runs in onnxruntime with nothing of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.base.errors import UsageError
from vitral.build import create
from vitral.model.classifier import Classifier
from vitral.model.tape import Tape
from vitral.weights.onnx.quantise import calibrate, float_graph, linears, open_graph, quantise_graph, store_graph
from vitral.weights.onnx.rounding import round_weights
from vitral.weights.predict_script import write_predict_script

onnx = pytest.importorskip("onnx")
SMALL = {"image_size": 32, "patch_size": 8, "width": 32, "depth": 2, "heads": 2, "mlp_width": 64, "classes": 10}
GATED = {"sub_norm": "attention+mlp", "activation": "swiglu"}
VARIANTS = [
    {"positions": "learned+rotary", "rotary": "eva", "rotary_grid": (4, 4), **GATED},
    {"positions": "relative", "block": "parallel"},
    {"pool": "map", "class_token": False, "norm": "rms", "norm_order": "res-post", "patch_norm": True},
    {"stride": 4, "qkv_bias": False, "bias": False, "head_bias": False},
]


def made(**changes) -> Classifier:
    torch.manual_seed(0)
    model = create("ti/16", **{**SMALL, **changes}).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # away from zero: biases and heads, too
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def pictures(model: Classifier, count: int = 8) -> np.ndarray:
    """Real pixels: 256 levels."""
    pixels = torch.randint(0, 256, (count, model.config.channels, *model.config.image_size), generator=torch.Generator().manual_seed(1))
    mean, std = (torch.tensor(fact.value).view(1, -1, 1, 1) for fact in (model.origin.mean, model.origin.std))
    return ((pixels / 255 - mean) / std).numpy()


@pytest.fixture(scope="module")
def model() -> Classifier:
    return made()


@pytest.fixture(scope="module")
def graph(model):
    return float_graph(model)


def run(graph, images: np.ndarray) -> np.ndarray:
    return open_graph(graph.SerializeToString(), 1)(images)[0]


def test_every_linear_layer_is_found_by_its_own_name(model, graph):
    found = linears(graph.graph, model)
    expected = [
        f"blocks.{block}.{part}" for block in range(2) for part in ("attention.qkv", "attention.projection", "mlp.expand", "mlp.contract")
    ]
    assert [one.name for one in found] == ["patches.projection", *expected, "head.linear"]
    assert Counter(one.kind for one in found) == {"pixels": 1, "tokens": 7, "gelu": 2} and [one.rounded for one in found][-1] is False


def test_weights_are_int8_with_a_scale_per_output_channel(model, graph):
    made_graph = quantise_graph(graph, model)
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in made_graph.graph.initializer}
    weight, scale = constants["blocks.1.mlp.contract.weight_int8"], constants["blocks.1.mlp.contract.weight_scale"]
    ours = model.blocks[1].mlp.contract.weight.detach().numpy().T
    assert weight.dtype == np.int8 and scale.dtype == np.float32 and scale.shape == (32,)
    assert (weight == round_weights(ours)[0]).all() and np.abs(weight * scale - ours).max() <= 0.501 * scale.max()
    assert not any(value.dtype == np.float32 and value.size >= 1024 for value in constants.values()), "a large weight stayed fp32"
    assert made_graph.ByteSize() < 0.5 * graph.ByteSize()


def test_the_answers_are_close_and_known_inputs_bring_them_closer(model, graph):
    images = pictures(model, 64)
    before = run(graph, images)
    with torch.no_grad():
        assert np.abs(before - model(torch.from_numpy(images)).numpy()).max() <= 1e-4
    plain, known = (
        np.square(run(quantise_graph(graph, model, inputs), images) - before).mean() ** 0.5
        for inputs in (None, calibrate(graph, model, [pictures(model, 64)]))
    )
    assert known < plain < 0.02 * before.std()


def test_one_huge_token_does_not_cost_the_others_their_precision(model, graph):
    """The reason for a scale per token: 1,000 times larger than its neighbours, and they keep their answers."""
    layer = next(one for one in linears(graph.graph, model) if one.name == "blocks.0.attention.projection")
    single = quantise_graph(graph, model, layers=[layer.name])
    del single.graph.output[:]
    keep, wanted = [], {layer.output}
    for node in reversed(single.graph.node):  # the one product, cut out
        if set(node.output) & wanted and layer.source not in node.output:
            keep.append(node)
            wanted |= set(node.input)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in reversed(keep)]
    del single.graph.node[:], single.graph.input[:]
    single.graph.node.extend(nodes)
    shape = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ["batch", "tokens", 32])
    single.graph.input.append(onnx.helper.make_value_info(layer.source, shape))
    single.graph.output.append(onnx.helper.make_empty_tensor_value_info(layer.output))
    import onnxruntime

    session = onnxruntime.InferenceSession(single.SerializeToString(), providers=["CPUExecutionProvider"])
    tokens = np.random.default_rng(0).normal(size=(1, 6, 32)).astype(np.float32)
    huge = tokens.copy()
    huge[0, 2] *= 1000
    (calm,), (wild,) = (session.run(None, {layer.source: values}) for values in (tokens, huge))
    others = [0, 1, 3, 4, 5]
    assert (calm[0, others] == wild[0, others]).all() and np.isfinite(wild).all()
    (nothing,) = session.run(None, {layer.source: np.zeros_like(tokens)})
    assert np.allclose(nothing, model.blocks[0].attention.projection.bias.detach().numpy(), atol=1e-6), "a row of zeros"


def test_pixels_are_not_rounded_at_all(model, graph):
    """With weights that 8 bits hold exactly the patch embedding is exact."""
    exact = made()
    with torch.no_grad():
        weight = exact.patches.projection.weight
        weight.copy_(torch.randint(-127, 128, weight.shape) / 512)
        weight[:, 0, 0, 0] = 127 / 512
    before = float_graph(exact)
    images = pictures(exact)
    assert np.abs(run(quantise_graph(before, exact, layers=["patches.projection"]), images) - run(before, images)).max() < 2e-5


@pytest.mark.parametrize("changes", VARIANTS)
def test_other_families_are_quantised_too(changes):
    other = made(**changes)
    before, images = float_graph(other), pictures(other)
    inputs = calibrate(before, other, [images])
    after = run(quantise_graph(before, other, inputs), images)
    assert np.abs(after - run(before, images)).max() < 0.1 * run(before, images).std()
    assert {"head.linear"} >= {one.name for one in linears(before.graph, other)} - set(inputs)


def test_attention_stays_an_output(model):
    graph = quantise_graph(float_graph(model, attention=True), model)
    assert [output.name for output in graph.graph.output] == ["logits", "attention_0", "attention_1"]
    images, tape = pictures(model, 3), Tape(model)
    with torch.no_grad():
        model(torch.from_numpy(images), tape=tape)
    maps = open_graph(graph.SerializeToString(), 1, ["attention_0", "attention_1"])(images)
    for block, found in enumerate(maps):
        assert found.shape == (3, 2, 17, 17) and np.abs(found - tape.attention(block).numpy()).max() < 0.02


@pytest.mark.parametrize(("precision", "bound"), [("bf16", 2**-7), ("fp16", 2**-10)])
def test_sixteen_bits_are_stored_and_computed_in_fp32(model, graph, precision, bound):
    stored = store_graph(graph, model, precision)
    images = pictures(model)
    change = np.abs(run(stored, images) - run(graph, images)).max()
    assert 0 < change < 4 * bound * np.abs(run(graph, images)).max() and stored.ByteSize() < 0.75 * graph.ByteSize()


def test_what_fp16_cannot_hold_is_refused():
    large = made()
    with torch.no_grad():
        large.blocks[0].mlp.expand.weight[0, 0] = 1e6
    with pytest.raises(UsageError, match="bf16"):
        store_graph(float_graph(large), large, "fp16")
    store_graph(float_graph(large), large, "bf16")


def test_what_has_no_tokens_is_refused():
    with pytest.raises(UsageError, match="tokens"):
        float_graph(create("cnn", classes=3, image_size=32))


def test_the_script_beside_it_needs_nothing_of_ours(model, graph, tmp_path: Path):
    made_graph = quantise_graph(graph, model)
    (tmp_path / "model.onnx").write_bytes(made_graph.SerializeToString())
    write_predict_script(model, tmp_path, runs=True)
    properties = {one.key: one.value for one in made_graph.metadata_props}
    assert json.loads(properties["vitral.image_size"]) == [32, 32] and "int8" in properties["vitral.quantised"]
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    alone = "import sys, runpy; sys.modules['vitral'] = sys.modules['torch'] = None; sys.argv = ['predict.py', 'a.png']; "
    alone += "runpy.run_path('predict.py', run_name='__main__')"
    told = subprocess.run([sys.executable, "-c", alone], cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 0 and told.stdout.startswith("a.png ") and "%" in told.stdout, told.stderr
