"""A ViT in 8 bits, proven: does it still answer as the fp32 model does, how large is it, how fast, and which layer hurts most.

The model and its proof are made together; one that fails its limit is not given back unless that is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from vitral.base import layout
from vitral.base.device import describe_machine
from vitral.base.errors import DataError, FailedError, UsageError
from vitral.base.progress import progress
from vitral.base.text import percent
from vitral.model.classifier import Classifier
from vitral.study.proof_pictures import ProofPictures
from vitral.study.quantised import Changed, Layer, Proof, Version
from vitral.train.scores import calibration_of
from vitral.weights.onnx.graph import to_graph
from vitral.weights.onnx.quantise import Run, calibrate, float_graph, linears, open_graph, quantise_graph, store_graph

if TYPE_CHECKING:
    from PIL import Image

SAME = 0.97
"""Share of the pictures that must get the same answer."""
LOSS = 0.005
"""What top-1 may lose."""
STORED_PICTURES = 512
"""Pictures that bf16 and fp16 are judged on: they compute in fp32, at its speed."""
LAYER_PICTURES = 16
ROUNDS = 30
KEPT, SHOWN = 200, 24
"""Pictures with another answer that are named in the proof, and shown on its page."""
ORIGINAL, INT8, STORED = "fp32", "int8", ("bf16", "fp16")
FUSED = "fp32, fused operators"
"""The float graph that int8 is made of: what of the speed is not due to 8 bits."""

Times = tuple[float, float, float, float]
"""Seconds for one image; fp32's time over it: median, 10 and 90 % of the rounds."""


@dataclass(frozen=True)
class Quantised:
    proof: Proof
    files: dict[str, bytes] = field(repr=False)
    """Name → content of each model."""
    pictures: tuple[Image.Image, ...] = field(default=(), repr=False)
    """The first of `proof.changed`, as the model sees them."""


def quantise(
    model: Classifier,
    data: str,
    *,
    split: str | None = None,
    root: str | None = None,
    pictures: int | None = None,
    attention: bool = False,
    limit: float = SAME,
    loss: float = LOSS,
    anyway: bool = False,
    layer_pictures: int = LAYER_PICTURES,
    rounds: int = ROUNDS,
    threads: int = 0,
    name: str = "",
    command: str = "",
    quiet: bool = False,
) -> Quantised:
    """The model in int8, bf16 and fp16, and how many of their answers agree with its own.

    data: a data set's name, `folder:PATH`, or a folder of pictures; labels are used where they are the model's. `pictures`: at most.
    `limit` and `loss`: the share of same answers and the loss of top-1 that int8 must keep, or a FailedError is raised; `anyway`: not so.
    """
    if not model.config.classes:
        raise UsageError("this model has no head, so there are no answers to compare", "give it one: vitral probe or vitral train finetune")
    if not 0 <= limit <= 1 or loss < 0:
        raise UsageError(f"limit {limit}, loss {loss}", "both are shares: 0.97 of the answers the same, 0.005 of top-1 lost")
    if rounds < 1 or layer_pictures < 0 or (pictures is not None and pictures < 1):
        raise UsageError(f"{rounds} rounds, {layer_pictures} and {pictures} pictures", "use at least one round and one picture")
    began = time.perf_counter()
    model = model.cpu().eval()
    opened = ProofPictures(model, data, split, root, pictures)
    graph, exported = float_graph(model, attention), to_graph(model, attention)
    inputs = calibrate(graph, model, opened.calibration(), threads)
    made = {INT8: quantise_graph(graph, model, inputs)}
    for kind in STORED:
        try:
            made[kind] = store_graph(graph, model, kind)
        except UsageError as error:  # larger than fp16 has room for
            opened.notes.append(f"no {kind}: {error.message}")
    contents = {kind: one.SerializeToString() for kind, one in made.items()}
    everything = {ORIGINAL: exported.SerializeToString(), FUSED: graph.SerializeToString(), **contents}
    runs = {kind: open_graph(content, threads) for kind, content in everything.items()}
    logits, places = _answer(runs, opened, quiet)
    times = _race({kind: runs[kind] for kind in (ORIGINAL, FUSED, INT8)}, opened.one(), rounds, quiet)
    versions = tuple(
        _version(kind, len(everything[kind]), logits[kind], logits[ORIGINAL], opened.labels(places), model, times)
        for kind in (ORIGINAL, *made)
    )
    failures = _failures(versions[0], versions[1], limit, loss)
    names = [one.name for one in linears(graph.graph, model) if one.rounded]

    def one_layer(layer: str) -> Run:
        return open_graph(quantise_graph(graph, model, inputs, [layer]).SerializeToString(), threads)

    layers = _layers(names, one_layer, runs[FUSED], opened, layer_pictures, quiet)
    if failures and not anyway:
        worst = f" (most is lost in {layers[0].name})" if layers else ""
        raise FailedError(
            f"int8 {failures[0]}{worst}; nothing was written",
            "--force writes it all the same, --min-agreement and --max-top1-loss set other limits",
        )
    rows = _rows_that_changed(logits, model)
    fused = times[FUSED]
    notes = [*opened.notes, f"fp32 with int8's fused operators takes {fused[0] * 1e3:.1f} ms, {fused[1]:.2f} × as fast as fp32"]
    proof = Proof(
        name or model.origin.source.value,
        data,
        opened.split,
        len(logits[ORIGINAL]),
        versions,
        layers,
        layer_pictures,
        tuple(_changed(logits, row, opened.where(places[row]), model) for row in rows[:KEPT]),
        {"same": limit, "loss": loss},
        failures,
        tuple(notes),
        describe_machine() | _runtime(threads),
        time.perf_counter() - began,
        command,
    )
    named = {INT8: layout.QUANTISED, **{kind: layout.stored_name(kind) for kind in STORED}}
    shown = tuple(opened.shown(places[row]) for row in rows[:SHOWN])
    return Quantised(proof, {named[kind]: content for kind, content in contents.items()}, shown)


def _answer(runs: dict[str, Run], data: ProofPictures, quiet: bool) -> tuple[dict[str, np.ndarray], list[int]]:
    """Logits (N, K) of every precision, those stored in 16 bits of the first pictures; and the places of the pictures."""
    found: dict[str, list[np.ndarray]] = {kind: [] for kind in runs if kind != FUSED}
    places: list[int] = []
    with progress("Comparing answers", data.count, quiet) as bar:
        for images, these in data.batches():
            for kind, rows in found.items():
                if kind not in STORED or len(places) < STORED_PICTURES:
                    rows.append(runs[kind](images)[0])
            places += these
            bar.advance(len(these))
    if not places:
        raise DataError("none of the pictures can be read", "check the files named above")
    logits = {kind: np.concatenate(rows) for kind, rows in found.items()}
    if broken := next((kind for kind, rows in logits.items() if not np.isfinite(rows).all()), None):
        raise FailedError(f"the logits of {broken} are NaN or infinite", "the weights are damaged, or their training diverged")
    return logits, places


def _race(runs: dict[str, Run], image: np.ndarray, rounds: int, quiet: bool) -> dict[str, Times]:
    """All in turn, round after round, so that what slows the machine slows every one."""
    taken: dict[str, list[float]] = {kind: [] for kind in runs}
    with progress("Timing", rounds, quiet) as bar:
        for turn in range(rounds + 2):
            for kind, run in runs.items():
                began = time.perf_counter()
                run(image)
                if turn >= 2:  # the first two warm it up
                    taken[kind].append(time.perf_counter() - began)
            bar.advance(turn >= 2)
    found = {}
    for kind, times in taken.items():
        middle, low, high = np.quantile(np.divide(taken[ORIGINAL], times), (0.5, 0.1, 0.9))
        found[kind] = float(np.median(times)), float(middle), float(low), float(high)
    return found


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
    found = [Layer(name, squares[name] ** 0.5, float(np.abs(changes[name]).max()), squares[name] / total) for name in names]
    return tuple(sorted(found, key=lambda layer: -layer.typical))


def _version(
    kind: str,
    size: int,
    logits: np.ndarray,
    original: np.ndarray,
    labels: np.ndarray | None,
    model: Classifier,
    times: dict[str, Times],
) -> Version:
    original = original[: len(logits)]
    change = logits - original
    answers, shares = _answers(logits, model)
    before, shares_before = _answers(original, model)
    top1 = error = None
    if labels is not None and len(labels) == len(logits) and not model.origin.multi_label:  # of fewer pictures it could not be compared
        right = answers == labels
        top1, error = float(right.mean()), calibration_of(shares, right)["error"]
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


def _failures(original: Version, made: Version, limit: float, loss: float) -> tuple[str, ...]:
    found = []
    if made.same < limit:
        same = f"{round(made.same * made.pictures):,} of {made.pictures:,} pictures"
        found.append(f"gives {same} the same answer as fp32, fewer than {percent(limit)}")
    if original.top1 is not None and made.top1 is not None and original.top1 - made.top1 > loss:
        found.append(f"has top-1 {percent(made.top1)} where fp32 has {percent(original.top1)}, and {100 * loss:g} points may be lost")
    return tuple(found)


def _rows_that_changed(logits: dict[str, np.ndarray], model: Classifier) -> list[int]:
    """Pictures with another answer, those that fp32 was surest of first."""
    if model.origin.multi_label:
        return []
    before, sure = _answers(logits[ORIGINAL], model)
    rows = np.flatnonzero(before != logits[INT8].argmax(axis=1))
    return rows[np.argsort(-sure[rows], kind="stable")].tolist()


def _changed(logits: dict[str, np.ndarray], row: int, where: str, model: Classifier) -> Changed:
    (before,), (sure_before,) = _answers(logits[ORIGINAL][row : row + 1], model)
    (after,), (sure_after,) = _answers(logits[INT8][row : row + 1], model)
    called = model.origin.class_name
    return Changed(where, called(int(before)), float(sure_before), called(int(after)), float(sure_after))


def _runtime(threads: int) -> dict[str, Any]:
    import onnxruntime

    return {"onnxruntime": onnxruntime.__version__, "onnxruntime_threads": threads or "its own choice"}
