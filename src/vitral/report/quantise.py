"""A model in 8 bits → its folder: the models, how to use them, proof.json, and one page that shows the proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitral.base import layout
from vitral.base.errors import UsageError
from vitral.base.files import check_writable, replacing_folder, write_atomic, write_json
from vitral.base.text import NOTHING, byte_size, counted, duration
from vitral.draw.charts import bar_chart
from vitral.model.classifier import Classifier
from vitral.report import inline
from vitral.report.render import percent, write_page
from vitral.study.quantise import INT8, ORIGINAL, Quantised
from vitral.study.quantised import Proof, Version
from vitral.weights.predict_script import write_predict_script

LAYERS = 16
"""Layers that are drawn."""


def check_folder(folder: str | Path) -> Path:
    """A folder that a quantised model may take the place of: a new one, an empty one, or one that holds such a model."""
    folder = Path(folder)
    check_writable(folder)
    if folder.exists() and any(folder.iterdir()) and not (folder / layout.PROOF).exists():
        raise UsageError(f"{folder} holds something else", "name a new folder with --out")
    return folder


def write_quantised(found: Quantised, model: Classifier, folder: str | Path) -> Path:
    """The models, predict.py, preprocess.json, proof.json and report.html in `folder`, all or none; the page's path."""
    folder, proof = check_folder(folder), found.proof
    with replacing_folder(folder) as new:
        for name, content in found.files.items():
            write_atomic(new / name, content)
        write_predict_script(model, new, runs=True)
        write_json(new / layout.PROOF, proof.to_dict())
        write_page("quantise.html", new / layout.REPORT, **_content(found))
    return folder / layout.REPORT


def _content(found: Quantised) -> dict[str, Any]:
    proof = found.proof
    small, original = proof.version(INT8), proof.version(ORIGINAL)
    lead = f"{percent(small.same)} of {small.pictures:,} pictures of {proof.data} ({proof.split}) get the same answer in 8 bits as in fp32"
    tiles = [
        inline.of_image(image, f"{one.before} {percent(one.confidence_before)} → {one.after} {percent(one.confidence_after)}")
        for image, one in zip(found.pictures, proof.changed, strict=False)
    ]
    return {
        "title": f"{proof.model} in 8 bits",
        "lead": lead,
        "notes": [f"written although it fails its limit: int8 {failure}" for failure in proof.failures],
        "answers": (_columns(original), [_row(one, original) for one in proof.versions]),
        "sizes": [_size_row(one) for one in proof.versions],
        "speed": _speed(small),
        "limits": proof.limits,
        "told": proof.notes,
        "layers": [[one.name, f"{one.typical:.4f}", f"{one.largest:.3f}", percent(one.share)] for one in proof.layers],
        "layer_pictures": proof.layer_pictures,
        "figures": _figures(proof),
        "tiles": tiles,
        "changed": [
            [one.picture, one.before, percent(one.confidence_before), one.after, percent(one.confidence_after)] for one in proof.changed
        ],
        "differing": counted(round(small.pictures * (1 - small.same)), "picture"),
        "machine": {**proof.machine, "seconds": duration(proof.seconds)},
        "command": proof.command,
    }


def _columns(original: Version) -> list[str]:
    labelled = ["top-1", "calibration error"] if original.top1 is not None else []
    return ["", "pictures", "same answers", *labelled, "largest logit change", "confidence changes by"]


def _row(one: Version, original: Version) -> list[str]:
    labelled = [percent(one.top1), NOTHING if one.calibration is None else f"{one.calibration:.4f}"] if original.top1 is not None else []
    return [one.name, f"{one.pictures:,}", percent(one.same), *labelled, f"{one.largest:.3f}", percent(one.confidence)]


def _size_row(one: Version) -> list[str]:
    took = NOTHING if one.milliseconds is None else f"{one.milliseconds:.1f} ms"
    return [one.name, one.file or NOTHING, byte_size(one.bytes), took, NOTHING if one.speed is None else f"{one.speed:.2f} ×"]


def _speed(small: Version) -> str:
    if small.speed is None or small.spread is None:
        return ""
    low, high = small.spread
    spread = f"10 to 90 % of the rounds: {low:.2f} to {high:.2f}"
    return f"One picture at a time, both in turn: int8 is {small.speed:.2f} × as fast as fp32 ({spread})."


def _figures(proof: Proof) -> list[inline.Illustration]:
    if not proof.layers:
        return []
    worst = proof.layers[:LAYERS]
    title = "Change of the logits when one layer alone is in 8 bits"
    figure = bar_chart([one.name for one in worst], [one.typical for one in worst], label="root mean square", title=title)
    return [inline.of_figure(figure, f"{title}: the {len(worst)} worst of {len(proof.layers)} layers, {proof.layer_pictures} pictures")]
