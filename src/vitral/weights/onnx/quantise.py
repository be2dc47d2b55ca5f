"""A model as an ONNX graph in 8 bits: weights with a scale per output channel, activations with a scale per token.

    graph = float_graph(model)
    onnx.save(quantise_graph(graph, model), path)

One scale for a whole activation meets a ViT's few huge tokens and leaves the others a handful of levels; here each row of every product is
divided by its own largest value first, rounded, multiplied as integers, and given its size back:

    y = largest · (round(127 · x / largest) @ int8 weights) · scale / 127 + bias

K inputs and N outputs of a linear layer. Everything else (norms, softmax, attention's two products, residuals) stays in fp32.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vitral.base.errors import UsageError
from vitral.base.lazy import needed
from vitral.base.numbers import to_numpy
from vitral.base.origin import per_channel
from vitral.model.classifier import Classifier
from vitral.weights.onnx.graph import to_graph
from vitral.weights.onnx.rounding import LEVELS, SMALLEST, Inputs, gptq_round, round_weights, smoothquant_scales
from vitral.weights.predict_script import metadata

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

OPSET = 23
"""Attention and GELU are single operators from here on."""
_GELU_ZERO, _GELU_LEAST = 24, -0.17
"""GELU has no value below −0.17: 24 levels hold that, and 231 are left for what is above zero instead of 127."""
_CONTRIBUTED = "com.microsoft"
"""Where onnxruntime keeps the product that gives floats with a scale per column; part of every build of it."""
_POSITIONS = ("positions.table", "model.positions.table")
"""Added, not multiplied; stored in fp16."""
STORED = 1024
"""Numbers from which a weight is worth storing in 16 bits."""

Run = Callable[[np.ndarray], list[np.ndarray]]
"""Images (B, C, H, W) → the outputs of a graph."""


@dataclass(frozen=True)
class Linear:
    """A product with a constant matrix, found in a graph."""

    name: str
    """As in the model: blocks.0.mlp.expand."""
    node: int
    """Its place among the graph's nodes."""
    source: str
    """The value that is multiplied."""
    weight: np.ndarray
    """(K, N)"""
    bias: str
    """The constant that is added, or empty."""
    add: int | None
    """The node that adds it, where it is one of its own."""
    output: str
    kind: str
    """tokens; gelu: what GELU gave; pixels: patches cut from the images and nothing else done to them."""

    @property
    def rounded(self) -> bool:
        """Not the head: its rounding would show in the logits as it is, and it is one product a picture. It is stored in fp16."""
        return not self.name.startswith(("head", "distillation_head"))


def float_graph(model: Classifier, attention: bool = False) -> ModelProto:
    """The graph of `model` in fp32 that the others are made of; logits, on request the attention maps of every block."""
    if not model.config.is_transformer:
        raise UsageError(f"a {model.config.family} has no tokens to give a scale each", "quantise a ViT or a hybrid")
    return _folded(to_graph(model, attention, OPSET))


def quantise_graph(
    graph: ModelProto, model: Classifier, inputs: Mapping[str, Inputs] | None = None, layers: Collection[str] | None = None
) -> ModelProto:
    """A copy of a `float_graph` in 8 bits, the head in fp16; `inputs`: of `calibrate`, for better rounding; `layers`: these alone."""
    from onnx import helper

    heads = [graph.graph.node[one.node].input[1] for one in linears(graph.graph, model) if not one.rounded]
    made = store_graph(graph, model, "fp16", [*heads, *_POSITIONS] if layers is None else ())
    products = [one for one in linears(made.graph, model) if one.rounded and (layers is None or one.name in layers)]
    writer = _Writer(made.graph, model, dict(inputs or {}))
    products = {one.node: one for one in writer.balanced(products)}
    gone = {one.add for one in products.values() if one.add is not None}
    nodes: list[NodeProto] = []
    for index, node in enumerate(made.graph.node):
        if index in products:
            nodes += writer.product(products[index])
        elif index not in gone:
            nodes.append(node)
    _replace_nodes(made.graph, [*writer.first, *nodes])
    made.opset_import.append(helper.make_opsetid(_CONTRIBUTED, 1))
    helper.set_model_props(made, metadata(model) | {"vitral.quantised": "int8: weights per output channel, activations per token"})
    return made


def calibrate(graph: ModelProto, model: Classifier, batches: Iterable[np.ndarray], threads: int = 0) -> dict[str, Inputs]:
    """What every layer of a `float_graph` is given on these images (B, C, H, W)."""
    from onnx import helper

    products = linears(graph.graph, model)
    watched = copy.deepcopy(graph)
    sources = list(dict.fromkeys(one.source for one in products))
    del watched.graph.output[:]
    watched.graph.output.extend(helper.make_empty_tensor_value_info(source) for source in sources)
    run = open_graph(watched.SerializeToString(), threads, sources)
    rows, sums, largest = dict.fromkeys(sources, 0), {}, {}
    for images in batches:
        for source, value in zip(sources, run(images), strict=True):
            flat = value.reshape(-1, value.shape[-1])
            rows[source] += len(flat)
            sums[source] = sums.get(source, 0) + flat.T @ flat
            largest[source] = np.maximum(largest.get(source, 0), np.abs(flat).max(axis=0))
    return {one.name: Inputs(sums[one.source] / rows[one.source], largest[one.source]) for one in products if rows[one.source]}


def open_graph(content: bytes, threads: int = 0, outputs: Sequence[str] = ("logits",)) -> Run:
    """A graph in onnxruntime, on the CPU; `threads` 0: its own choice."""
    onnxruntime = needed("onnxruntime", "running an ONNX graph")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda images: [np.asarray(value) for value in session.run(list(outputs), {"images": images})]


def store_graph(graph: ModelProto, model: Classifier, precision: str, names: Collection[str] | None = None) -> ModelProto:
    """A copy of a `float_graph` whose weights are stored in bf16 or fp16 and made fp32 when it is loaded: half the size, fp32's speed.

    `names`: of the constants, these alone.

    A CPU has no products in these precisions in onnxruntime; a graph all in bf16 would not run there.
    """
    from onnx import TensorProto, helper, numpy_helper

    kind = {"bf16": TensorProto.BFLOAT16, "fp16": TensorProto.FLOAT16}[precision]
    made = copy.deepcopy(graph)
    nodes = []
    for constant in made.graph.initializer:
        if constant.data_type != TensorProto.FLOAT or math.prod(constant.dims) < STORED:
            continue
        if names is not None and constant.name not in names:
            continue
        values = numpy_helper.to_array(constant)
        if precision == "fp16" and np.abs(values).max() > np.finfo(np.float16).max:
            raise UsageError(f"{constant.name} has values that fp16 cannot hold", "use bf16 or int8")
        name = constant.name
        bits = values.astype(np.float16).tobytes() if precision == "fp16" else _bfloat16(values).tobytes()
        constant.CopyFrom(helper.make_tensor(f"{name}.{precision}", kind, list(constant.dims), bits, raw=True))
        nodes.append(helper.make_node("Cast", [constant.name], [name], to=TensorProto.FLOAT))
    _replace_nodes(made.graph, [*nodes, *made.graph.node])
    helper.set_model_props(made, metadata(model) | {"vitral.quantised": f"weights stored in {precision}"})
    return made


def linears(graph: GraphProto, model: Classifier) -> list[Linear]:
    """Every product with a constant matrix, in the order of the graph."""
    constants, users, makers = _constants(graph), _users(graph), {out: node for node in graph.node for out in node.output}
    names, products = _weight_names(model), []
    for index, node in enumerate(graph.node):
        if node.op_type not in ("MatMul", "Gemm") or node.input[1] not in constants:
            continue
        weight = constants[node.input[1]]
        attributes = {one.name: one for one in node.attribute}
        if node.op_type == "Gemm" and "transB" in attributes and attributes["transB"].i:
            weight = weight.T
        if weight.ndim != 2 or weight.dtype != np.float32:
            continue
        bias, add, output = (node.input[2] if len(node.input) > 2 else ""), None, node.output[0]
        after = users.get(output, [])
        if not bias and len(after) == 1 and graph.node[after[0]].op_type == "Add":
            other = [name for name in graph.node[after[0]].input if name != output]
            if other and other[0] in constants and constants[other[0]].shape == (weight.shape[1],):
                bias, add, output = other[0], after[0], graph.node[after[0]].output[0]
        name = names.get(weight.tobytes(), bias.removesuffix(".bias").removeprefix("model.") or f"product {index}")
        kind = _kind(node.input[0], makers)
        products.append(Linear(name, index, node.input[0], weight, bias, add, output, kind))
    return products


class _Writer:
    """Nodes and constants of the 8-bit products of one graph."""

    def __init__(self, graph: GraphProto, model: Classifier, inputs: dict[str, Inputs]) -> None:
        self.graph, self.model, self.inputs = graph, model, inputs
        self.values = _constants(graph)
        self.first: list[NodeProto] = []
        """Nodes before all others."""

    def balanced(self, products: list[Linear]) -> list[Linear]:
        """Layers behind a LayerNorm that nothing else reads: the norm's own factors even out its outputs, at no cost when it runs."""
        users = _users(self.graph)
        out = {one.node: one for one in products}
        for norm in self.graph.node:
            readers = [out.get(index) for index in users.get(norm.output[0], [])]
            takers = [one for one in readers if one is not None]
            if norm.op_type != "LayerNormalization" or not takers or len(takers) < len(readers) or takers[0].name not in self.inputs:
                continue
            factors = smoothquant_scales([one.weight for one in takers], self.inputs[takers[0].name])
            for index, name in enumerate(norm.input[1:], 1):
                norm.input[index] = self._constant(f"{name}.balanced", self.values[name] / factors)
            for one in takers:
                self.inputs[one.name] = self.inputs[one.name].times(1 / factors)
                out[one.node] = dataclasses.replace(one, weight=one.weight * factors[:, None])
        return list(out.values())

    def _rounded(self, name: str, weight: np.ndarray, factors: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """`factors`: what the inputs that were watched are multiplied by here."""
        if name not in self.inputs:
            return round_weights(weight)
        return gptq_round(weight, self.inputs[name] if factors is None else self.inputs[name].times(factors))

    def product(self, linear: Linear) -> Iterator[NodeProto]:
        yield from self._pixels(linear) if linear.kind == "pixels" else self._tokens(linear)

    def _tokens(self, linear: Linear) -> Iterator[NodeProto]:
        name, source = linear.name, linear.source
        weight, scale = self._rounded(name, linear.weight)
        if linear.kind == "gelu":  # one-sided, so that no absolute value is needed either
            zero, levels, least = _GELU_ZERO, 255 - _GELU_ZERO, -_GELU_LEAST * (255 - _GELU_ZERO) / _GELU_ZERO
        else:
            zero, levels, least = 128, LEVELS, SMALLEST
            yield _node("Abs", [source], f"{name}.size")
            source = f"{name}.size"
        yield _node("ReduceMax", [source, self._constant("last_axis", np.array([-1]))], f"{name}.most", keepdims=1)
        yield _node("Max", [f"{name}.most", self._constant(f"least_{linear.kind}", np.float32(least))], f"{name}.largest")
        yield _node("Div", [linear.source, f"{name}.largest"], f"{name}.shares")
        step = self._constant(f"step_{linear.kind}", np.float32(1 / levels))
        middle = self._constant(f"zero_{linear.kind}", np.uint8(zero))
        yield _node("QuantizeLinear", [f"{name}.shares", step, middle], f"{name}.int8")
        yield self._integers(name, f"{name}.int8", weight, step, scale, middle)
        yield _node("Mul", [f"{name}.product", f"{name}.largest"], f"{name}.sized" if linear.bias else linear.output)
        if linear.bias:
            yield _node("Add", [f"{name}.sized", linear.bias], linear.output)

    def _pixels(self, linear: Linear) -> Iterator[NodeProto]:
        """Pixels have 256 levels to begin with: normalisation is undone, and nothing is lost in rounding them."""
        name, config, origin = linear.name, self.model.config, self.model.origin
        mean, std = (np.array(per_channel(of.value, config.channels), np.float32) for of in (origin.mean, origin.std))
        each = len(linear.weight) // config.channels  # pixels of a patch lie channel by channel
        deviations = np.repeat(std, each)
        weight, scale = self._rounded(name, linear.weight / deviations[:, None], deviations)
        shift = -(np.repeat(mean, each).astype(np.float64) @ (weight * scale.astype(np.float64)))  # (N,)
        bias = shift + (self.values[linear.bias] if linear.bias else 0)
        for constant, numbers in (("std", std), ("mean", mean)):
            self._constant(f"pixels.{constant}", numbers.reshape(1, -1, 1, 1))
        step = self._constant("step_pixels", np.float32(1 / 255))
        zero = self._constant("zero_pixels", np.uint8(0))
        self.first = [
            _node("Mul", ["images", "pixels.std"], "pixels.scaled"),
            _node("Add", ["pixels.scaled", "pixels.mean"], "pixels.shares"),
            _node("QuantizeLinear", ["pixels.shares", step, zero], "pixels"),
        ]
        for node in self.graph.node:  # cut into patches as they are
            if node.op_type == "Reshape" and node.input[0] == "images":
                node.input[0] = "pixels"
        yield self._integers(name, linear.source, weight, step, scale, zero)
        yield _node("Add", [f"{name}.product", self._constant(f"{name}.shift", bias.astype(np.float32))], linear.output)

    def _integers(self, name: str, source: str, weight: np.ndarray, step: str, scale: np.ndarray, zero: str) -> NodeProto:
        inputs = [source, self._constant(f"{name}.weight_int8", weight), step, self._constant(f"{name}.weight_scale", scale), zero]
        return _node("MatMulIntegerToFloat", inputs, f"{name}.product", domain=_CONTRIBUTED)

    def _constant(self, name: str, value: np.ndarray | np.generic) -> str:
        from onnx import numpy_helper

        if name not in self.values:
            self.values[name] = np.asarray(value)
            self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name


def _kind(source: str, makers: dict[str, NodeProto]) -> str:
    if source in makers and makers[source].op_type == "Gelu":
        return "gelu"
    while source in makers and makers[source].op_type in ("Reshape", "Transpose"):
        source = makers[source].input[0]
    return "pixels" if source == "images" else "tokens"


def _folded(model: ModelProto) -> ModelProto:
    """Reshaped and transposed constants as constants of their own: the patch embedding's weight becomes a matrix."""
    from onnx import numpy_helper

    graph, remaining = model.graph, []
    values = _constants(graph)
    for node in graph.node:
        if node.op_type not in ("Reshape", "Transpose") or not all(name in values for name in node.input):
            remaining.append(node)
            continue
        value = values[node.input[0]]
        turned = value.reshape(values[node.input[1]]) if node.op_type == "Reshape" else value.transpose(node.attribute[0].ints)
        values[node.output[0]] = turned
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(turned), node.output[0]))
    _replace_nodes(graph, remaining)
    return model


def _replace_nodes(graph: GraphProto, nodes: list[NodeProto]) -> None:
    """These nodes instead, and only the constants that they use."""
    nodes = [copy.deepcopy(node) for node in nodes]
    for node in nodes:  # the exporter's notes (names of Python files, lines) are a fifth of a megabyte
        node.ClearField("name")
        node.ClearField("doc_string")
        del node.metadata_props[:]
    used = {name for node in nodes for name in node.input} | {output.name for output in graph.output}
    constants = [copy.deepcopy(one) for one in graph.initializer if one.name in used]
    del graph.node[:], graph.initializer[:], graph.value_info[:], graph.metadata_props[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)


def _constants(graph: GraphProto) -> dict[str, np.ndarray]:
    from onnx import numpy_helper

    return {one.name: numpy_helper.to_array(one) for one in graph.initializer}


def _users(graph: GraphProto) -> dict[str, list[int]]:
    users: dict[str, list[int]] = {}
    for index, node in enumerate(graph.node):
        for name in node.input:
            users.setdefault(name, []).append(index)
    return users


def _weight_names(model: Classifier) -> dict[bytes, str]:
    """A matrix as its products hold it (K, N) → the layer it belongs to."""
    weights = {name: value for name, value in model.state_dict().items() if name.endswith(".weight") and value.ndim > 1}
    matrices = {name: to_numpy(value.float().flatten(1).T.contiguous()) for name, value in weights.items()}
    return {matrix.tobytes(): name.removesuffix(".weight") for name, matrix in matrices.items()}


def _bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper 16 bits, rounded to the nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _node(kind: str, inputs: list[str], output: str, **attributes: Any) -> NodeProto:
    from onnx import helper

    return helper.make_node(kind, inputs, [output], **attributes)
