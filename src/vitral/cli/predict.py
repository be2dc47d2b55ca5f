"""vitral predict: the most probable classes of pictures."""

from __future__ import annotations

import dataclasses
import json
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

from vitral.base.errors import DataError
from vitral.base.progress import print_clean
from vitral.base.text import percent, table
from vitral.cli.opening import AnswerFlags, exit_status, open_model, picture_paths
from vitral.cli.parsing import parse

if TYPE_CHECKING:
    from vitral.look.predict import Ranking

EXAMPLES = """Rank the classes of images.

Examples:
  vitral predict runs/digits photo.png --top 3
  vitral predict vit_tiny.safetensors photos/ --table answers.csv
"""


@dataclasses.dataclass(frozen=True)
class _Flags(AnswerFlags):
    model: Annotated[str, "MODEL"]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    images: Annotated[tuple[str, ...], "IMAGE…"]
    """Pictures, or folders of any depth with pictures."""
    top: int = 5
    """How many classes to show; of several labels a picture those that are answers come on top, however many."""
    table: str | None = None
    """Also write the answers to this file: .csv, .json or .parquet."""
    json: bool = False
    """Print JSON instead of a table."""


def run(arguments: list[str]) -> int:
    asked = parse(_Flags, arguments, "vitral predict", EXAMPLES)
    paths = picture_paths(asked.images)
    from vitral.base.records import check_kind, write_records

    if asked.table:
        check_kind(asked.table)
    model = open_model(asked.model, asked)
    from vitral.data.sources.pictures import open_readable
    from vitral.look.predict import predict

    bad: list[tuple[str, DataError]] = []
    rankings = predict(model, open_readable(paths, model, bad), top=asked.top, batch_size=asked.batch, precision=asked.precision)
    if asked.table:
        write_records(asked.table, [ranking.record() for ranking in rankings])
    if asked.json:
        about = {"source": model.origin.source.value, "assumed": model.origin.assumptions()}
        unreadable = [{"picture": source, "error": error.message} for source, error in bad]
        answers = {"model": about, "pictures": [ranking.to_dict() for ranking in rankings], "unreadable": unreadable}
        print(json.dumps(answers, indent=2, ensure_ascii=False))
        return exit_status(asked.images, bad)
    for ranking in rankings:
        print_clean(ranking.source)
        print_clean(indent(table(_rows(ranking), align="lr"), "  "))
    return exit_status(asked.images, bad)


def _rows(ranking: Ranking) -> list[tuple[str, str, str]]:
    """Class, probability, logit; of several labels: whether its threshold is reached."""
    if not ranking.thresholds:
        return [(name, percent(share), f"logit {logit:.3f}") for (name, share), logit in zip(ranking, ranking.logits, strict=True)]
    return [
        (name, percent(share), f"{'yes' if share >= threshold else 'no'}, from {percent(threshold)} on")
        for (name, share), threshold in zip(ranking, ranking.thresholds, strict=True)
    ]
