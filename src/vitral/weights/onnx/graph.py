"""A model as an ONNX file: dynamic batch, logits, on request the attention maps of every block; class names and preprocessing inside."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from vitral.base.errors import UsageError, WeightsError
from vitral.base.files import write_atomic, writing
from vitral.base.lazy import how_to_install
from vitral.model.classifier import Classifier, evaluating
from vitral.model.tape import Tape
from vitral.weights.predict_script import metadata, write_predict_script

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 18


class _Outputs(nn.Module):
    """(images) → (logits, attention of block 0, 1, …)."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        tape = Tape(self.model)
        logits = self.model(images, tape=tape)
        return logits, *(tape.attention(block) for block in range(self.model.config.depth))


def write_onnx(model: Classifier, path: Path, attention: bool = False) -> Path:
    """Write `model` to `path`: input `images`, outputs `logits` and, with `attention`, `attention_0`, `attention_1`, …"""
    with writing(path):
        made = to_graph(model, attention)
        written = write_atomic(path, made.SerializeToString())
    write_predict_script(model, path.parent, runs=True)
    return written


def to_graph(model: Classifier, attention: bool = False, opset: int = OPSET) -> ModelProto:
    """`model` as an ONNX graph with its class names and preprocessing inside."""
    config = model.config
    if attention and not config.is_transformer:
        raise UsageError(f"a {config.family} has no attention", "leave attention out")
    wrapped = _Outputs(model) if attention else model
    names = ["logits", *(f"attention_{block}" for block in range(config.depth))] if attention else ["logits"]
    images = torch.zeros(2, config.channels, *config.image_size, device=next(model.parameters()).device)
    try:
        with tempfile.TemporaryDirectory() as folder, evaluating(wrapped), _quiet(), torch.no_grad():
            torch.onnx.export(
                wrapped,
                (images,),
                str(Path(folder) / "graph.onnx"),
                input_names=["images"],
                output_names=names,
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                opset_version=opset,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
            import onnx

            made = onnx.load(str(Path(folder) / "graph.onnx"))
            onnx.helper.set_model_props(made, metadata(model))
            return made
    except ImportError as error:
        raise WeightsError(f"ONNX export needs {error.name or 'onnx and onnxscript'}", how_to_install("onnx")) from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter talks of its own inner deprecations, which a user can do nothing about."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for kind in (DeprecationWarning, FutureWarning):
                warnings.simplefilter("ignore", kind)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
