"""A model in 8 bits → its folder: the models, how to use them, proof.json, and one page that shows the proof."""

from __future__ import annotations

from pathlib import Path

from vitral.base import layout
from vitral.base.errors import UsageError
from vitral.base.files import check_writable, replacing_folder, write_atomic, write_json
from vitral.base.text import NOTHING, byte_size, counted, duration
from vitral.draw.charts import bar_chart
from vitral.model.classifier import Classifier
from vitral.report import inline
from vitral.report.page import Section, part, percent, section, write_page
from vitral.study.proof import INT8, ORIGINAL, Proof, Quantised, Version
from vitral.weights.predict_script import write_predict_script

_LAYERS = 16
"""Layers that are drawn."""


def check_folder(folder: str | Path) -> Path:
    """A folder that a quantised model may take the place of: a new one, an empty one, or one that holds such a model."""
    folder = Path(folder)
    check_writable(folder)
    if folder.exists() and any(folder.iterdir()) and not (folder / layout.PROOF).exists():
        raise UsageError(f"{folder} holds something else", "name a new folder with --out")
    return folder


def write_quantised(quantised: Quantised, model: Classifier, folder: str | Path) -> Path:
    """The models, predict.py, preprocess.json, proof.json and report.html in `folder`, all or none; the page's path."""
    folder, proof = check_folder(folder), quantised.proof
    with replacing_folder(folder) as new:
        for name, content in quantised.files.items():
            write_atomic(new / name, content)
        write_predict_script(model, new, runs=True)
        write_json(new / layout.PROOF, proof.to_dict())
        small = proof.version(INT8)
        same = f"{percent(small.same)} of {small.pictures:,} pictures of {proof.data} ({proof.split})"
        write_page(
            new / layout.REPORT,
            f"{proof.model} in 8 bits",
            _sections(quantised),
            lead=f"{same} get the same answer in 8 bits as in fp32",
            notes=[f"written although it fails its limit: int8 {failure}" for failure in proof.failures],
        )
    return folder / layout.REPORT


def _sections(quantised: Quantised) -> list[Section]:
    proof, limits = quantised.proof, quantised.proof.limits
    small, original = proof.version(INT8), proof.version(ORIGINAL)
    return [
        section("Answers beside fp32's", part("table", [_row(one, original) for one in proof.versions], _columns(original))),
        section(
            "Size and speed",
            part("table", [_size_row(one) for one in proof.versions], ["", "file", "size", "one picture", "speed"]),
            f"{_speed(small)} Weights in bf16 and fp16 are made fp32 when they are loaded: half the size, at fp32's speed. "
            f"The limits: {percent(limits['same'])} of the answers the same; where there are labels, "
            f"at most {100 * limits['loss']:g} points of top-1 lost.",
            *(f"{remark[:1].upper()}{remark[1:]}." for remark in proof.notes),
        ),
        *([_layers(proof)] if proof.layers else []),
        _changed(quantised),
        section("Where it was measured", part("named_values", {**proof.machine, "seconds": duration(proof.seconds)})),
        section("Make it again", part("code", proof.command)),
    ]


def _changed(quantised: Quantised) -> Section:
    changed = quantised.proof.changed
    if not changed:
        return section("Other answers", "None: every picture has the same answer.")
    small = quantised.proof.version(INT8)
    tiles = [
        inline.of_image(image, f"{one.before} {percent(one.confidence_before)} → {one.after} {percent(one.confidence_after)}")
        for image, one in zip(quantised.pictures, changed, strict=False)
    ]
    rows = [[one.picture, one.before, percent(one.confidence_before), one.after, percent(one.confidence_after)] for one in changed]
    return section(
        "Other answers",
        f"{counted(round(small.pictures * (1 - small.same)), 'picture')} with another answer; those that fp32 was surest of come first.",
        part("gallery", [("", tiles)]),
        part("table", rows, ["picture", "fp32", "confidence", "int8", "confidence"], "the pictures"),
    )


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


def _layers(proof: Proof) -> Section:
    worst = proof.layers[:_LAYERS]
    title = "Change of the logits when one layer alone is in 8 bits"
    figure = bar_chart([one.name for one in worst], [one.typical for one in worst], label="root mean square", title=title)
    caption = f"{title}: the {len(worst)} worst of {len(proof.layers)} layers, {proof.layer_pictures} pictures"
    rows = [[one.name, f"{one.typical:.4f}", f"{one.largest:.3f}", percent(one.share)] for one in proof.layers]
    return section(
        "Which layer hurts most",
        part("figures", [inline.of_figure(figure, caption)]),
        f"Each layer alone in 8 bits and all others in fp32, on {proof.layer_pictures} pictures; "
        "the share is of the sum of squared changes.",
        part("table", rows, ["layer", "typical change", "largest", "share"], "every layer"),
    )
