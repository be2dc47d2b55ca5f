"""vitral embed MODEL FOLDER: what a model's head would read, for every picture of a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from vitral.base.layout import FEATURES
from vitral.base.progress import print_clean
from vitral.base.text import percent, table
from vitral.cli.opening import FeatureFlags, open_model
from vitral.cli.parsing import parse

EXAMPLES = """Write feature vectors of all images in a folder, with their paths and class folders, a map,
neighbours and near-duplicates.

Examples:
  vitral embed runs/digits photos --out features.npz
  vitral embed timm:vit_tiny_patch16_224 photos --out features.parquet
  vitral embed timm:vit_tiny_patch16_224 photos --out embedded  # with a page
"""
_SHOWN = 5
"""Near-duplicates that are printed."""


@dataclass(frozen=True)
class _Flags(FeatureFlags):
    model: Annotated[str, "MODEL"]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    folder: Annotated[str, "FOLDER"]
    """Pictures, in folders of any depth; the first folder of each is its label."""
    out: str = FEATURES
    """A file ending in .npz or .parquet; or a folder for both, with a page (report.html) and the near-duplicates (embedding.json)."""
    map: Literal["auto", "tsne", "pca"] = "auto"
    """Of the page: t-SNE shows groups, PCA the two main directions; auto: t-SNE up to 2,000 pictures."""
    json: bool = False
    """Print what was written as JSON."""
    quiet: bool = False
    """No progress."""


def run(arguments: list[str]) -> int:
    flags = parse(_Flags, arguments, "vitral embed", EXAMPLES)
    from vitral.base.files import check_writable
    from vitral.base.records import check_kind
    from vitral.data.sources.pictures import picture_folder
    from vitral.draw.provenance import command_line
    from vitral.study.embed import embed

    kind = Path(flags.out).suffix.lower()
    if kind == ".parquet":
        check_kind(flags.out)
    page = kind not in (".npz", ".parquet")
    check_writable(flags.out if page else Path(flags.out).parent)
    picture_folder(flags.folder)
    model = open_model(flags.model, flags)
    embedding = embed(model, flags.folder, batch_size=flags.batch, precision=flags.precision, thumbnails=page, quiet=flags.quiet)
    if page:
        from vitral.report.embedding import write_embedding

        written = write_embedding(embedding, flags.out, flags.model, command_line(["vitral", "embed", *arguments]), flags.map)
    else:
        written = {"path": str(embedding.write(flags.out)), **embedding.summary()}
    print_clean(json.dumps(written) if flags.json else _text(written))
    return 0


def _text(written: dict[str, Any]) -> str:
    lines = [f"{written['pictures']:,} pictures, {written['width']} numbers each: {written['path']}"]
    if written.get("agreement") is not None:
        lines.append(f"nearest neighbour of the same class: {percent(written['agreement'])}")
    pairs = written.get("near_duplicates", [])
    if pairs:
        rows = [[pair["first"], pair["second"], percent(pair["likeness"])] for pair in pairs[:_SHOWN]]
        lines += [f"near-duplicates: {len(pairs)}", table(rows, align="llr")]
    return "\n".join([*lines, *([written["page"]] if "page" in written else [])])
