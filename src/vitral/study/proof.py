"""A ViT in 8 bits, with its proof: how often it answers as the fp32 model does, its size, its speed, and the layer that hurts most.

`quantise` makes the model and its proof together. A model that misses its limits is an error, unless `Limits.force` is set.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from vitral.base import layout
from vitral.base.device import describe_machine
from vitral.base.errors import DataError, FailedError, UsageError
from vitral.base.progress import progress
from vitral.base.text import NOTHING, byte_size, percent, table
from vitral.model.classifier import Classifier
from vitral.study.proof_pictures import ProofPictures
from vitral.train.scores import calibration_of
from vitral.weights.onnx.graph import to_graph
from vitral.weights.onnx.quantise import Run, calibrate, float_graph, linears, open_graph, quantise_graph, store_graph

_STORED_PICTURES = 512
"""Pictures that bf16 and fp16 are measured on: they compute in fp32, at its speed."""
_NAMED, _SHOWN = 200, 24
"""Pictures with another answer that the proof names, and that its page shows."""
ORIGINAL, INT8, _STORED = "fp32", "int8", ("bf16", "fp16")
_FUSED = "fp32, fused operators"
"""The float graph that int8 is made of: what of the speed is not due to 8 bits."""

_Times = tuple[float, float, float, float]
"""Seconds for one image; fp32's time over it: median, 10 and 90 % of the rounds."""


@dataclass(frozen=True)
class Limits:
    """What int8 must keep. `quantise` raises a FailedError where it does not."""

    agreement: float = 0.97
    """Share of the pictures that must get the same answer."""
    top1_loss: float = 0.005
    """Share of top-1 that may be lost."""
    force: bool = False
    """Return the model all the same."""

    def __post_init__(self) -> None:
        if not 0 <= self.agreement <= 1 or self.top1_loss < 0:
            both = "both are shares: 0.97 of the answers the same, 0.005 of top-1 lost"
            raise UsageError(f"limit {self.agreement}, loss {self.top1_loss}", both)


@dataclass(frozen=True)
class Version:
    """The model in one precision, compared with fp32 on the same pictures."""

    name: str
    file: str
    bytes: int
    pictures: int
    same: float
    """Share of the pictures with the same answer."""
    largest: float
    """Largest change of a logit."""
    typical: float
    """Root mean square of the changes."""
    confidence: float
    """Mean size of the change of confidence."""
    top1: float | None = None
    calibration: float | None = None
    """Expected calibration error."""
    milliseconds: float | None = None
    """For one picture, median of the rounds."""
    speed: float | None = None
    """fp32's time over its own, within a round, median of the rounds."""
    spread: tuple[float, float] | None = None
    """10 and 90 % of the rounds."""


@dataclass(frozen=True)
class Layer:
    """What the logits lose when this layer alone is in 8 bits."""

    name: str
    typical: float
    largest: float
    share: float
    """Of the sum of all layers' squared changes."""


@dataclass(frozen=True)
class Changed:
    """A picture with another answer."""

    picture: str
    before: str
    confidence_before: float
    after: str
    confidence_after: float


@dataclass(frozen=True)
class Proof:
    model: str
    data: str
    split: str
    pictures: int
    versions: tuple[Version, ...]
    layers: tuple[Layer, ...]
    """The worst first."""
    layer_pictures: int
    changed: tuple[Changed, ...]
    limits: dict[str, float]
    failures: tuple[str, ...]
    """Limits that int8 fails, in words."""
    notes: tuple[str, ...]
    machine: dict[str, Any]
    seconds: float
    command: str = ""

    def version(self, name: str) -> Version:
        return next(one for one in self.versions if one.name == name)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "passed": not self.failures}

    def text(self) -> str:
        labelled = any(one.top1 is not None for one in self.versions)
        rows = [
            [
                one.name,
                byte_size(one.bytes),
                percent(one.same),
                *([percent(one.top1) if one.top1 is not None else NOTHING] if labelled else []),
                f"{one.largest:.3f}",
                NOTHING if one.milliseconds is None else f"{one.milliseconds:.1f} ms",
                NOTHING if one.speed is None else f"{one.speed:.2f} ×",
            ]
            for one in self.versions
        ]
        head = ["", "size", "same answers", *(["top-1"] if labelled else []), "largest logit change", "one picture", "speed"]
        worst = f"hurts most: {self.layers[0].name} ({percent(self.layers[0].share)} of the squared change)" if self.layers else ""
        lines = [f"{self.model} on {self.data} ({self.split}, {self.pictures:,} pictures)", table(rows, head, align="lr"), worst]
        return "\n".join(line for line in (*lines, *(f"note: {note}" for note in self.notes)) if line)


@dataclass(frozen=True)
class Quantised:
    proof: Proof
    files: dict[str, bytes] = field(repr=False)
    """Name → content of each model."""
    pictures: tuple[Image.Image, ...] = field(default=(), repr=False)
    """The first of `proof.changed`, as the model sees them."""


def quantise(
    pictures: ProofPictures,
    *,
    limits: Limits | None = None,
    attention: bool = False,
    layer_pictures: int = 16,
    rounds: int = 30,
    threads: int = 0,
    quiet: bool = False,
) -> Quantised:
    """The model of `pictures` in int8, bf16 and fp16, and how many of their answers agree with its own.

    `attention`: the maps of every block are further outputs. `layer_pictures`: on so many each layer is tried alone.
    """
    if rounds < 1 or layer_pictures < 0:
        raise UsageError(f"{rounds} rounds, {layer_pictures} pictures for each layer", "use at least one round")
    start, model, limits = time.perf_counter(), pictures.model, limits or Limits()
    graph, exported = float_graph(model, attention), to_graph(model, attention)
    inputs = calibrate(graph, model, pictures.calibration(), threads)
    made = {INT8: quantise_graph(graph, model, inputs)}
    for kind in _STORED:
        try:
            made[kind] = store_graph(graph, model, kind)
        except UsageError as error:  # larger than fp16 has room for
            pictures.notes.append(f"no {kind}: {error.message}")
    contents = {kind: one.SerializeToString() for kind, one in made.items()}
    everything = {ORIGINAL: exported.SerializeToString(), _FUSED: graph.SerializeToString(), **contents}
    runs = {kind: open_graph(content, threads) for kind, content in everything.items()}
    logits, indices = _answer(runs, pictures, quiet)
    times = _race({kind: runs[kind] for kind in (ORIGINAL, _FUSED, INT8)}, pictures.one(), rounds, quiet)
    versions = tuple(
        _version(kind, len(everything[kind]), logits[kind], logits[ORIGINAL], pictures.labels(indices), model, times)
        for kind in (ORIGINAL, *made)
    )
    failures = _failures(versions[0], versions[1], limits)
    names = [one.name for one in linears(graph.graph, model) if one.rounded]

    def one_layer(layer: str) -> Run:
        return open_graph(quantise_graph(graph, model, inputs, [layer]).SerializeToString(), threads)

    layers = _layers(names, one_layer, runs[_FUSED], pictures, layer_pictures, quiet)
    if failures and not limits.force:
        worst = f" (most is lost in {layers[0].name})" if layers else ""
        raise FailedError(
            f"int8 {failures[0]}{worst}; nothing was written",
            "--force writes it all the same, --min-agreement and --max-top1-loss set other limits",
        )
    rows = _rows_that_changed(logits, model)
    fused = times[_FUSED]
    notes = [*pictures.notes, f"fp32 with int8's fused operators takes {fused[0] * 1e3:.1f} ms, {fused[1]:.2f} × as fast as fp32"]
    proof = Proof(
        model.origin.source.value,
        pictures.data,
        pictures.split,
        len(logits[ORIGINAL]),
        versions,
        layers,
        layer_pictures,
        tuple(_changed(logits, row, pictures.where(indices[row]), model) for row in rows[:_NAMED]),
        {"same": limits.agreement, "loss": limits.top1_loss},
        failures,
        tuple(notes),
        describe_machine() | _runtime(threads),
        time.perf_counter() - start,
    )
    named = {INT8: layout.QUANTISED, **{kind: layout.stored_name(kind) for kind in _STORED}}
    shown = tuple(pictures.shown(indices[row]) for row in rows[:_SHOWN])
    return Quantised(proof, {named[kind]: content for kind, content in contents.items()}, shown)


def _answer(runs: dict[str, Run], data: ProofPictures, quiet: bool) -> tuple[dict[str, np.ndarray], list[int]]:
    """Logits (N, K) of every precision, those stored in 16 bits of the first pictures; and the indices of the pictures."""
    outputs: dict[str, list[np.ndarray]] = {kind: [] for kind in runs if kind != _FUSED}
    indices: list[int] = []
    with progress("Comparing answers", data.count, quiet) as bar:
        for images, here in data.batches():
            for kind, rows in outputs.items():
                if kind not in _STORED or len(indices) < _STORED_PICTURES:
                    rows.append(runs[kind](images)[0])
            indices += here
            bar.advance(len(here))
    if not indices:
        raise DataError("none of the pictures can be read", "check the files named above")
    logits = {kind: np.concatenate(rows) for kind, rows in outputs.items()}
    if damaged := next((kind for kind, rows in logits.items() if not np.isfinite(rows).all()), None):
        raise FailedError(f"the logits of {damaged} are NaN or infinite", "the weights are damaged, or their training diverged")
    return logits, indices


def _race(runs: dict[str, Run], image: np.ndarray, rounds: int, quiet: bool) -> dict[str, _Times]:
    """All in turn, round after round, so that whatever slows the machine slows all of them."""
    seconds: dict[str, list[float]] = {kind: [] for kind in runs}
    with progress("Timing", rounds, quiet) as bar:
        for turn in range(rounds + 2):
            for kind, run in runs.items():
                start = time.perf_counter()
                run(image)
                if turn >= 2:  # the first two warm it up
                    seconds[kind].append(time.perf_counter() - start)
            bar.advance(turn >= 2)
    times = {}
    for kind, own in seconds.items():
        middle, low, high = np.quantile(np.divide(seconds[ORIGINAL], own), (0.5, 0.1, 0.9))
        times[kind] = float(np.median(own)), float(middle), float(low), float(high)
    return times


def _layers(
    names: list[str], one_layer: Callable[[str], Run], original: Run, data: ProofPictures, count: int, quiet: bool
) -> tuple[Layer, ...]:
    """What each layer costs on its own, the worst first."""
    if not count:
        return ()
    images = [some for some, _ in data.batches(count)]
    before = np.concatenate([original(some)[0] for some in images])
    changes = {}
    with progress("Layer by layer", len(names), quiet) as bar:
        for name in names:
            run = one_layer(name)
            changes[name] = np.concatenate([run(some)[0] for some in images]) - before
            bar.advance()
    squares = {name: float(np.square(change).mean()) for name, change in changes.items()}
    total = sum(squares.values()) or 1.0
    layers = [Layer(name, squares[name] ** 0.5, float(np.abs(changes[name]).max()), squares[name] / total) for name in names]
    return tuple(sorted(layers, key=lambda layer: -layer.typical))


def _version(
    kind: str,
    size: int,
    logits: np.ndarray,
    original: np.ndarray,
    labels: np.ndarray | None,
    model: Classifier,
    times: dict[str, _Times],
) -> Version:
    original = original[: len(logits)]
    change = logits - original
    answers, shares = _answers(logits, model)
    before, shares_before = _answers(original, model)
    top1 = error = None
    if labels is not None and len(labels) == len(logits) and not model.origin.multi_label:  # of fewer pictures it could not be compared
        correct = answers == labels
        top1, error = float(correct.mean()), calibration_of(shares, correct)["error"]
    seconds, speed, low, high = times.get(kind, (None,) * 4)
    return Version(
        kind,
        {INT8: layout.QUANTISED, ORIGINAL: ""}.get(kind, layout.stored_name(kind)),
        size,
        len(logits),
        float((answers == before).reshape(len(logits), -1).all(axis=1).mean()),
        float(np.abs(change).max()),
        float(np.sqrt(np.square(change).mean())),
        float(np.abs(shares - shares_before).mean()),
        top1,
        error,
        None if seconds is None else seconds * 1e3,
        speed,
        None if low is None or high is None else (low, high),
    )


def _answers(logits: np.ndarray, model: Classifier) -> tuple[np.ndarray, np.ndarray]:
    """The answer and its confidence; of several labels every class's own."""
    if model.origin.multi_label:
        shares = 1 / (1 + np.exp(-logits))
        return shares >= np.array(model.origin.thresholds), shares
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return logits.argmax(axis=1), (shares / shares.sum(axis=1, keepdims=True)).max(axis=1)


def _failures(original: Version, made: Version, limits: Limits) -> tuple[str, ...]:
    failures = []
    if made.same < limits.agreement:
        same = f"{round(made.same * made.pictures):,} of {made.pictures:,} pictures"
        failures.append(f"gives {same} the same answer as fp32, fewer than {percent(limits.agreement)}")
    if original.top1 is not None and made.top1 is not None and original.top1 - made.top1 > limits.top1_loss:
        failures.append(
            f"has top-1 {percent(made.top1)} where fp32 has {percent(original.top1)}, and {100 * limits.top1_loss:g} points may be lost"
        )
    return tuple(failures)


def _rows_that_changed(logits: dict[str, np.ndarray], model: Classifier) -> list[int]:
    """Pictures with another answer, those that fp32 was most confident of first."""
    if model.origin.multi_label:
        return []
    before, confidence = _answers(logits[ORIGINAL], model)
    rows = np.flatnonzero(before != logits[INT8].argmax(axis=1))
    return rows[np.argsort(-confidence[rows], kind="stable")].tolist()


def _changed(logits: dict[str, np.ndarray], row: int, where: str, model: Classifier) -> Changed:
    (before,), (confidence_before,) = _answers(logits[ORIGINAL][row : row + 1], model)
    (after,), (confidence_after,) = _answers(logits[INT8][row : row + 1], model)
    called = model.origin.class_name
    return Changed(where, called(int(before)), float(confidence_before), called(int(after)), float(confidence_after))


def _runtime(threads: int) -> dict[str, Any]:
    import onnxruntime

    return {"onnxruntime": onnxruntime.__version__, "onnxruntime_threads": threads or "its own choice"}
