"""vitral eval MODEL DATA: how good a model is."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from textwrap import indent
from typing import Annotated, Any, Literal

from vitral.base.progress import print_clean
from vitral.base.text import percent, table
from vitral.cli.opening import AnswerFlags, open_model
from vitral.cli.parsing import parse

EXAMPLES = """Measure loss, top-1 and top-5, per-class accuracy, confusion and calibration of a model on a data set.

Examples:
  vitral eval runs/digits digits
  vitral eval runs/flowers folder:photos --out scored
  vitral eval runs/flowers flowers102 --split validation --json
  vitral eval timm:vit_tiny_patch16_224 folder:imagenet/val --table all.csv
  vitral eval timm:vit_base_patch16_224 folder:imagenet/val --precision fp8
"""


@dataclass(frozen=True)
class _Flags(AnswerFlags):
    model: Annotated[str, "MODEL"]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    data: Annotated[str, "DATA"]
    """A name from `vitral data list`, folder:PATH, csv:FILE, parquet:FILE, hf:NAME or webdataset:PATTERN."""
    batch: Annotated[int, "--batch --batch-size"] = field(default=1000, kw_only=True)
    """Pictures at a time: fewer need less memory."""
    split: Literal["all", "test", "validation", "train", "sealed"] | None = None
    """Which pictures; None: the test split of data that has one or that the model learnt from, else all. sealed: of a run with
    --stage confirm alone."""
    root: str | None = None
    """Where data sets are kept; None: $VITRAL_DATA or ~/.cache/vitral/data."""
    workers: int = 0
    """Processes that decode pictures."""
    on_bad_image: Literal["fail", "skip"] = "skip"
    """Pass over a file that cannot be read and count it, or stop there."""
    calibrate: bool = False
    """Probabilities at the temperature that suits the validation pictures best."""
    tta: Literal["flip"] | None = None
    """Test-time augmentation. flip: the mean over each picture and its mirror image."""
    table: str | None = None
    """Also write a row for each picture to this file: .csv, .json or .parquet."""
    out: str | None = None
    """Also write scores, answers and a page with the pictures (report.html) into this folder."""
    json: bool = False
    """Print everything as JSON, the confusion matrix too."""


def run(arguments: list[str]) -> int:
    flags = parse(_Flags, arguments, "vitral eval", EXAMPLES)
    from vitral.base.files import check_writable
    from vitral.base.records import check_kind, write_records
    from vitral.data.sources.kinds import check_name
    from vitral.train.evaluate import evaluate

    if flags.table:
        check_kind(flags.table)
    if flags.out:
        check_writable(flags.out)
    check_name(flags.data)
    model = open_model(flags.model, flags)
    result = evaluate(
        model,
        flags.data,
        flags.split,
        batch_size=flags.batch,
        workers=flags.workers,
        root=flags.root,
        on_bad_image=flags.on_bad_image,
        calibrate=flags.calibrate,
        tta=flags.tta,
        precision=flags.precision,
    )
    if flags.table:
        write_records(flags.table, result.records())
    if flags.out:
        from vitral.draw.provenance import command_line
        from vitral.report.test_results import write_evaluation

        page = write_evaluation(result, flags.out, flags.model, flags.data, command_line(["vitral", "eval", *arguments]), model)
        print(page, file=sys.stderr)
    split = result.split.name if result.split else "all"
    values = {"model": flags.model, "data": flags.data, "split": split, **result.to_dict()}
    print(json.dumps(values)) if flags.json else print_clean(_text(values))
    return 0


def _text(values: dict[str, Any]) -> str:
    skipped = f", {values['skipped']:,} unreadable" if values["skipped"] else ""
    lines = [f"{values['model']} on {values['data']} ({values['split']}, {values['pictures']:,} pictures{skipped}, in {values['dtype']})"]
    if agreement := values.get("same_in_bf16"):
        lines.append(f"  fp8: the same answer as bf16 on {agreement['same']:,} of {agreement['pictures']:,} pictures")
    if "mean_average_precision" in values:
        return "\n".join([*lines, *_multi_label(values)])
    scores = f"top-1 {percent(values['top1'])}   top-5 {percent(values['top5'])}   loss {values['loss']:.4f}"
    at = f" at temperature {values['temperature']:.2f}" if values["temperature"] != 1 else ""
    lines.append(f"  {scores}   calibration error {values['calibration']['error']:.3f}{at}")
    lines.append(f"  balanced accuracy {percent(values['balanced_accuracy'])}   F1 (mean of classes) {percent(values['f1'])}")
    ranked = sorted(((share, name) for name, share in values["per_class"].items() if share is not None))
    rows = [[name, percent(share), percent(values["precision"][name])] for share, name in ranked[:20]]
    lines.append(indent(table(rows, ["", "recall", "precision"], align="lr"), "  "))
    if len(ranked) > 20:
        lines.append(f"  … and {len(ranked) - 20} better classes (--json has all)")
    names, confusion = list(values["per_class"]), values["confusion"]
    pairs = sorted(((count, i, j) for i, row in enumerate(confusion) for j, count in enumerate(row) if i != j and count), reverse=True)
    lines += [f"  {names[i]} taken for {names[j]}: {count}" for count, i, j in pairs[:5]]
    return "\n".join(lines)


def _multi_label(values: dict[str, Any]) -> list[str]:
    """Of several labels a picture: mAP, then class by class."""
    shares = f"mean average precision {percent(values['mean_average_precision'])}"
    shares += f"   F1 (mean of classes) {percent(values['f1'])}   every label right {percent(values['exact'])}"
    scored = sorted((row["average_precision"], name) for name, row in values["classes"].items() if row["average_precision"] is not None)
    keys = ("average_precision", "recall", "precision", "threshold")
    cells = {name: [percent(row[key]) for key in keys] for name, row in values["classes"].items()}
    rows = [[name, f"{values['classes'][name]['images']:,}", *cells[name]] for _, name in scored[:20]]
    shown = table(rows, ["", "pictures", "average precision", "recall", "precision", "threshold"], align="lr")
    more = [f"  … and {len(scored) - 20} better classes (--json has all)"] if len(scored) > 20 else []
    return [f"  {shares}   loss {values['loss']:.4f}", indent(shown, "  "), *more]
