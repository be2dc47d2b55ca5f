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
from vitral.draw.pairs import pair_sheet
from vitral.draw.palette import SERIES, series_colour
from vitral.draw.tiles import picture_sheet
from vitral.report import inline
from vitral.report.render import percent, write_page
from vitral.report.test_results import link_to
from vitral.study.embed import Embedding

ROWS, NEAREST = 8, 5
"""Pictures whose neighbours are shown, and how many of them."""
PAIRS = 20
"""Near-duplicates that are drawn; the list beside the page has all."""
SIDE = 64
"""Pixels of a thumbnail."""
OPENED = 200
"""Pixels of a picture on a sheet."""
SHAPES = ("disc", "square", "ring")
NAMED = len(SERIES) * len(SHAPES)
"""Classes with a colour and a shape of their own; the rest share one."""


def write_embedding(
    found: Embedding, folder: str | Path, model: str, command: str = "", kind: Literal["auto", "tsne", "pca"] = "auto"
) -> dict[str, Any]:
    """features.npz (and .parquet, where pyarrow is), embedding.json and report.html in `folder`; what was found, as plain values."""
    folder = make_folder(Path(folder))
    files = [found.write(folder / FEATURES)]
    if importlib.util.find_spec("pyarrow") is not None:
        files.append(found.write((folder / FEATURES).with_suffix(".parquet")))
    near, page = found.near_duplicates(), folder / REPORT
    drawn = _telling(near)
    pairs = [{"first": found.paths[a], "second": found.paths[b], "likeness": round(share, 4)} for a, b, share in near]
    told = {"model": model, "folder": str(found.folder), **found.summary(), "agreement": found.agreement, "near_duplicates": pairs}
    write_json(folder / EMBEDDED, told)
    alone = len(found.paths) < 2
    places = np.zeros((len(found.paths), 2)) if alone else found.map(kind)
    rows = [[found.paths[a], found.paths[b], percent(share)] for a, b, share in drawn]
    write_page(
        "embedding.html",
        page,
        title=f"{found.folder.resolve().name} as {model if ':' in model else Path(model).name} sees it",
        lead=f"{len(found.paths):,} pictures, {found.features.shape[1]} numbers each",
        notes=_notes(found),
        scores=_scores(found, len(near)),
        sprite=_sprite(found.thumbnails),
        legend=_legend(found),
        points=_points(found, places, page),
        neighbours=[] if alone else _neighbours(found),
        duplicates=_duplicates(found, drawn),
        pairs=rows,
        more=len(pairs) - len(rows),
        command=command,
    )
    return {**told, "path": str(files[0]), "files": [str(path) for path in files], "page": str(page)}


def _telling(near: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """Of many pictures that are all alike, not every pair: one that shows something new."""
    seen: set[int] = set()
    chosen = []
    for pair in near:
        if not seen.issuperset(pair[:2]) and len(chosen) < PAIRS:
            chosen.append(pair)
            seen.update(pair[:2])
    return chosen


def _notes(found: Embedding) -> list[str]:
    notes = [f"{counted(found.skipped, 'picture')} could not be read"] if found.skipped else []
    if len(found.thumbnails) < len(found.paths):
        notes.append(f"the map shows {len(found.thumbnails):,} of {len(found.paths):,} pictures, evenly spread")
    return notes


def _scores(found: Embedding, near: int) -> dict[str, Any]:
    share = {"nearest neighbour of the same class": percent(found.agreement)} if found.agreement is not None else {}
    return {"pictures": len(found.paths), **share, "near-duplicates": near}


def _classes(found: Embedding) -> list[str]:
    """The largest first; of very many the rest has no colour of its own."""
    return [name for name, _ in sorted(Counter(found.labels).items(), key=lambda item: (-item[1], item[0]))]


def _legend(found: Embedding) -> list[dict[str, Any]]:
    counts, names = Counter(found.labels), _classes(found)
    if names == [""]:
        return []
    shown = [{"name": name or "in no folder", "number": n, "count": counts[name], **_look(n)} for n, name in enumerate(names[:NAMED])]
    rest = names[NAMED:]
    return shown + ([{"name": few(rest, 3), "number": NAMED, "count": sum(counts[name] for name in rest), **_look(NAMED)}] if rest else [])


def _look(number: int) -> dict[str, str]:
    if number >= NAMED:
        return {"colour": "#8a949e", "shape": "disc"}
    return {"colour": series_colour(number), "shape": SHAPES[number // len(SERIES)]}


def _points(found: Embedding, places: np.ndarray, page: Path) -> list[dict[str, Any]]:
    """Where each thumbnail lies on the map, in percent, and in the sprite."""
    low, spread = places.min(axis=0), np.maximum(np.ptp(places, axis=0), 1e-12)
    numbers = {name: min(number, NAMED) for number, name in enumerate(_classes(found))}
    across = _across(len(found.thumbnails))
    out = []
    for order, position in enumerate(found.thumbnails):
        x, y = (3 + 94 * (places[position] - low) / spread).tolist()
        number = numbers[found.labels[position]]
        out.append(
            {
                "left": f"{x:.2f}",
                "top": f"{100 - y:.2f}",
                "side": ("right " if x > 70 else "") + ("below" if y > 70 else ""),
                "across": SIDE * (order % across),
                "down": SIDE * (order // across),
                "number": number,
                "caption": found.paths[position],
                "link": link_to(str(found.folder / found.paths[position]), page),
                **_look(number),
            }
        )
    return out


def _across(count: int) -> int:
    return max(1, math.ceil(math.sqrt(count)))


def _sprite(thumbnails: dict[int, Image.Image]) -> str:
    """All thumbnails in one picture: a page of two thousand addresses would open slowly."""
    across = _across(len(thumbnails))
    sheet = Image.new("RGB", (SIDE * across, SIDE * -(-len(thumbnails) // across)), "white")
    for order, image in enumerate(thumbnails.values()):
        sheet.paste(image.resize((SIDE, SIDE)), (SIDE * (order % across), SIDE * (order // across)))
    return inline.of_image(sheet, "").source


def _neighbours(found: Embedding) -> list[inline.Illustration | str]:
    """First what lies among another class, then what lies in the middle of its own."""
    who, near = found.neighbours(NEAREST)
    labels = np.array(found.labels)
    strange = np.flatnonzero(labels != labels[who[:, 0]])
    strange = strange[np.argsort(-near[strange, 0], kind="stable")][: ROWS // 2]
    middles = [int(np.flatnonzero(labels == name)[near[labels == name].mean(axis=1).argmax()]) for name in _classes(found)]
    rows = list(dict.fromkeys([*map(int, strange), *middles]))[:ROWS]
    images, captions = [], []
    for row in rows:
        images += [_open(found, row), *(_open(found, int(other)) for other in who[row])]
        captions += [_name(found, row), *(f"{_name(found, int(o))} {percent(s)}" for o, s in zip(who[row], near[row], strict=True))]
    sheet = picture_sheet(images, captions, columns=1 + who.shape[1], width=1.25)
    told = "; those that lie nearest to another class come first" if len(strange) else ""
    return [inline.of_figure(sheet, f"Each row: a picture, then the {who.shape[1]} nearest to it by cosine{told}")]


def _duplicates(found: Embedding, near: list[tuple[int, int, float]]) -> list[inline.Illustration | str]:
    if not near:
        return []
    pairs = [(_open(found, a), _open(found, b)) for a, b, _ in near]
    captions = [(_name(found, a), f"{_name(found, b)} {percent(share)}") for a, b, share in near]
    return [inline.of_figure(pair_sheet(pairs, captions, across=3), "Near-duplicates: how alike their features are")]


def _name(found: Embedding, number: int) -> str:
    return " · ".join(part for part in (found.labels[number], Path(found.paths[number]).name) if part)


def _open(found: Embedding, number: int) -> Image.Image:
    try:
        image = viewable(decode(str(found.folder / found.paths[number])))
    except DataError:  # gone since it was read
        return Image.new("RGB", (SIDE, SIDE), "white")
    image.thumbnail((OPENED, OPENED))
    return image
