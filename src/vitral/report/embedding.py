"""An embedding → one page: a map to hover over, pictures with their nearest neighbours, and near-duplicates side by side."""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from vitral.base.errors import DataError
from vitral.base.files import make_folder, write_json
from vitral.base.layout import EMBEDDED, FEATURES, REPORT
from vitral.base.text import counted, few
from vitral.data.images.decode import decode
from vitral.data.images.preprocess import viewable
from vitral.draw.style import SERIES, series_colour
from vitral.draw.tiles import pair_sheet, picture_sheet
from vitral.report import inline
from vitral.report.page import Section, part, percent, section, write_page
from vitral.report.test_results import link_to
from vitral.study.embed import Embedding

_ROWS, _NEAREST = 8, 5
"""Pictures whose neighbours are shown, and how many of them."""
_PAIRS = 20
"""Near-duplicates that are drawn; the list beside the page has all."""
_SIDE = 64
"""Pixels of a thumbnail."""
_OPENED = 200
"""Pixels of a picture on a sheet."""
_SHAPES = ("disc", "square", "ring")
_NAMED = len(SERIES) * len(_SHAPES)
"""Classes with a colour and a shape of their own; the rest share one."""


def write_embedding(
    embedding: Embedding, folder: str | Path, model: str, command: str = "", kind: Literal["auto", "tsne", "pca"] = "auto"
) -> dict[str, Any]:
    """features.npz (and .parquet, where pyarrow is), embedding.json and report.html in `folder`; what was found, as plain values."""
    folder = make_folder(Path(folder))
    files = [embedding.write(folder / FEATURES)]
    if importlib.util.find_spec("pyarrow") is not None:
        files.append(embedding.write((folder / FEATURES).with_suffix(".parquet")))
    near, page = embedding.near_duplicates(), folder / REPORT
    drawn = _informative(near)
    pairs = [{"first": embedding.paths[a], "second": embedding.paths[b], "likeness": round(share, 4)} for a, b, share in near]
    summary = {
        "model": model,
        "folder": str(embedding.folder),
        **embedding.summary(),
        "agreement": embedding.agreement,
        "near_duplicates": pairs,
    }
    write_json(folder / EMBEDDED, summary)
    alone = len(embedding.paths) < 2
    positions = np.zeros((len(embedding.paths), 2)) if alone else embedding.map(kind)
    sections = [
        section("", part("named_values", _scores(embedding, len(near)))),
        section(
            "Map",
            "Pictures that the model takes for alike lie near each other; distances between far groups mean little. Point at a "
            "mark to see its picture, at a class to see it alone; a click opens the file where it still is.",
            part("embedding_map", _points(embedding, positions, page), _legend(embedding), _sprite(embedding.thumbnails)),
        ),
        section("Nearest neighbours", [] if alone else part("figures", _neighbours(embedding))),
        _duplicates(embedding, drawn, len(pairs) - len(drawn)),
        section("Make it again", part("code", command)),
    ]
    title = f"{embedding.folder.resolve().name} as {model if ':' in model else Path(model).name} sees it"
    lead = f"{len(embedding.paths):,} pictures, {embedding.features.shape[1]} numbers each"
    write_page(page, title, sections, lead, _notes(embedding))
    return {**summary, "path": str(files[0]), "files": [str(path) for path in files], "page": str(page)}


def _informative(near: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """Of many pictures that are all alike, not every pair: one that shows something new."""
    seen: set[int] = set()
    chosen = []
    for pair in near:
        if not seen.issuperset(pair[:2]) and len(chosen) < _PAIRS:
            chosen.append(pair)
            seen.update(pair[:2])
    return chosen


def _notes(embedding: Embedding) -> list[str]:
    notes = [f"{counted(embedding.skipped, 'picture')} could not be read"] if embedding.skipped else []
    if len(embedding.thumbnails) < len(embedding.paths):
        notes.append(f"the map shows {len(embedding.thumbnails):,} of {len(embedding.paths):,} pictures, evenly spread")
    return notes


def _scores(embedding: Embedding, near: int) -> dict[str, Any]:
    share = {"nearest neighbour of the same class": percent(embedding.agreement)} if embedding.agreement is not None else {}
    return {"pictures": len(embedding.paths), **share, "near-duplicates": near}


def _classes(embedding: Embedding) -> list[str]:
    """The largest first; of very many the rest has no colour of its own."""
    return [name for name, _ in sorted(Counter(embedding.labels).items(), key=lambda item: (-item[1], item[0]))]


def _legend(embedding: Embedding) -> list[dict[str, Any]]:
    counts, names = Counter(embedding.labels), _classes(embedding)
    if names == [""]:
        return []
    shown = [{"name": name or "in no folder", "number": n, "count": counts[name], **_look(n)} for n, name in enumerate(names[:_NAMED])]
    rest = names[_NAMED:]
    return shown + (
        [{"name": few(rest, 3), "number": _NAMED, "count": sum(counts[name] for name in rest), **_look(_NAMED)}] if rest else []
    )


def _look(number: int) -> dict[str, str]:
    if number >= _NAMED:
        return {"colour": "#8a949e", "shape": "disc"}
    return {"colour": series_colour(number), "shape": _SHAPES[number // len(SERIES)]}


def _points(embedding: Embedding, positions: np.ndarray, page: Path) -> list[dict[str, Any]]:
    """Where each thumbnail lies on the map, in percent, and in the sprite."""
    low, spread = positions.min(axis=0), np.maximum(np.ptp(positions, axis=0), 1e-12)
    numbers = {name: min(number, _NAMED) for number, name in enumerate(_classes(embedding))}
    across = _across(len(embedding.thumbnails))
    out = []
    for order, position in enumerate(embedding.thumbnails):
        x, y = (3 + 94 * (positions[position] - low) / spread).tolist()
        number = numbers[embedding.labels[position]]
        out.append(
            {
                "left": f"{x:.2f}",
                "top": f"{100 - y:.2f}",
                "side": ("right " if x > 70 else "") + ("below" if y > 70 else ""),
                "across": _SIDE * (order % across),
                "down": _SIDE * (order // across),
                "number": number,
                "caption": embedding.paths[position],
                "link": link_to(str(embedding.folder / embedding.paths[position]), page),
                **_look(number),
            }
        )
    return out


def _across(count: int) -> int:
    return max(1, math.ceil(math.sqrt(count)))


def _sprite(thumbnails: dict[int, Image.Image]) -> str:
    """All thumbnails in one picture: a page of two thousand addresses would open slowly."""
    across = _across(len(thumbnails))
    sheet = Image.new("RGB", (_SIDE * across, _SIDE * -(-len(thumbnails) // across)), "white")
    for order, image in enumerate(thumbnails.values()):
        sheet.paste(image.resize((_SIDE, _SIDE)), (_SIDE * (order % across), _SIDE * (order // across)))
    return inline.of_image(sheet, "").source


def _neighbours(embedding: Embedding) -> list[inline.Illustration | str]:
    """First what lies among another class, then what lies in the middle of its own."""
    who, near = embedding.neighbours(_NEAREST)
    labels = np.array(embedding.labels)
    strange = np.flatnonzero(labels != labels[who[:, 0]])
    strange = strange[np.argsort(-near[strange, 0], kind="stable")][: _ROWS // 2]
    middles = [int(np.flatnonzero(labels == name)[near[labels == name].mean(axis=1).argmax()]) for name in _classes(embedding)]
    rows = list(dict.fromkeys([*map(int, strange), *middles]))[:_ROWS]
    images, captions = [], []
    for row in rows:
        images += [_open(embedding, row), *(_open(embedding, int(other)) for other in who[row])]
        captions += [_name(embedding, row), *(f"{_name(embedding, int(o))} {percent(s)}" for o, s in zip(who[row], near[row], strict=True))]
    sheet = picture_sheet(images, captions, columns=1 + who.shape[1], width=1.25)
    first = "; those that lie nearest to another class come first" if len(strange) else ""
    return [inline.of_figure(sheet, f"Each row: a picture, then the {who.shape[1]} nearest to it by cosine{first}")]


def _duplicates(embedding: Embedding, near: list[tuple[int, int, float]], more: int) -> Section:
    if not near:
        return section("Near-duplicates", "None were found.")
    pairs = [(_open(embedding, a), _open(embedding, b)) for a, b, _ in near]
    captions = [(_name(embedding, a), f"{_name(embedding, b)} {percent(share)}") for a, b, share in near]
    figure = inline.of_figure(pair_sheet(pairs, captions, across=3), "Near-duplicates: how alike their features are")
    rows = [[embedding.paths[a], embedding.paths[b], percent(share)] for a, b, share in near]
    return section(
        "Near-duplicates",
        "Pairs whose features are nearly the same: the same picture twice, saved again, cut or resized, or two of one moment. Where "
        "one of them is in the test split, the score is too good. embedding.json lists all.",
        part("figures", [figure]),
        part("table", rows, ["first", "second", "likeness"], "where they are"),
        f"… and {more} more pairs, most of them between pictures that are shown." if more else "",
    )


def _name(embedding: Embedding, number: int) -> str:
    return " · ".join(part for part in (embedding.labels[number], Path(embedding.paths[number]).name) if part)


def _open(embedding: Embedding, number: int) -> Image.Image:
    try:
        image = viewable(decode(str(embedding.folder / embedding.paths[number])))
    except DataError:  # gone since it was read
        return Image.new("RGB", (_SIDE, _SIDE), "white")
    image.thumbnail((_OPENED, _OPENED))
    return image
