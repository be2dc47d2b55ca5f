"""Every figure of the ViT literature from one model: the numbers here, the pixels in `draw`, the provenance beside each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitral.base.errors import UsageError, one_of
from vitral.base.numbers import to_numpy
from vitral.base.picture import Picture
from vitral.base.progress import progress, say
from vitral.base.text import percent
from vitral.draw.filters import filters_beside
from vitral.draw.heatmap import Heatmap
from vitral.draw.matrices import grid_of_grids, matrix_figure
from vitral.draw.overlay import enlarge
from vitral.draw.sheet import COLOURS_END, STARTS, clipped_overlay
from vitral.draw.tiles import patch_figure, picture_sheet
from vitral.look.attention import attention, attention_matrix
from vitral.look.choice import Start, find_target
from vitral.look.describe import Drawn, about_model, about_picture, seen, stems
from vitral.look.distance import watch_heads
from vitral.look.filters import Filters, filters
from vitral.look.health import health
from vitral.look.method import RECORDS, call, choose, watch_for
from vitral.look.predict import rank
from vitral.look.relevance import relevance
from vitral.look.rollout import JOIN, rollout
from vitral.look.sheet import TOP, mode_of, sheet
from vitral.look.shuffle import is_apart, shuffle
from vitral.look.similarity import POSITIONED, position_similarity, token_colours
from vitral.look.switch_off import ablate
from vitral.look.watch import each, open_pictures, watch
from vitral.model.classifier import Classifier
from vitral.model.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
FIGURES = (
    *("filters", "positions", "distance"),
    *("patches", "prediction", "methods", "attention", "rollout", "classes", "ablation", "shuffled", "norms", "colours"),
)
"""What `only` may name: positions, distance (with entropy) and attention are several figures each."""
OF_A_PICTURE = 3
"""From here on they belong to one picture."""


@dataclass(frozen=True)
class Wanted:
    """Which figures are to be made."""

    names: frozenset[str]

    def __call__(self, *names: str) -> bool:
        return not self.names.isdisjoint(names)


ALL = Wanted(frozenset(FIGURES))


def photographs() -> list[Path]:
    """scikit-learn's two photographs, which come with it."""
    spec = find_spec("sklearn")  # found, not imported: that takes seconds
    if spec is None or spec.origin is None:
        raise UsageError("scikit-learn, which has the two photographs, is not installed", "name your own pictures")
    folder = Path(spec.origin).parent / "datasets" / "images"
    return [folder / name for name in ("china.jpg", "flower.jpg")]


def check_figures(names: Sequence[str]) -> None:
    if wrong := next((name for name in names if name not in FIGURES), None):
        raise one_of("figure", wrong, FIGURES)


def figure_set(
    model: Classifier,
    pictures: Iterable[Any],
    out: str | Path,
    *,
    rival: Classifier | None = None,
    target: int | str | None = None,
    formats: Sequence[str] = FORMATS,
    only: Sequence[str] = (),
    token: Start | None = None,
    command: str = "",
    quiet: bool = False,
) -> list[Path]:
    """All figures that apply to the model, for each picture and over all, into `out`; the paths of the pictures written.

    rival: a CNN or ResNet whose first filters are drawn beside the ViT's.
    only: names out of FIGURES; the others are not made. token: whose rows are drawn as maps; None: the middle patch.
    """
    check_figures(only)
    wanted = Wanted(frozenset(only or FIGURES))
    opened = open_pictures(model, each(pictures))
    if target is not None:
        find_target(watch(model, opened[:1]), 0, target)  # a wrong name is told before anything is written
    names = stems(opened)
    about = about_model(model, command)
    written: list[Path] = []
    if model.config.is_transformer and model.config.positions not in POSITIONED and not quiet and wanted("positions"):
        say(f"no figures of positions: with positions = {model.config.positions} there are no vectors to compare")
    steps = _whole_count(model) + len(opened) * _picture_count(model) if not only else None
    with progress("Drawing", total=steps, quiet=quiet) as bar:
        for drawn in whole_model(model, opened, rival, wanted):
            written += drawn.save(Path(out) / drawn.name, about, formats)
            bar.advance()
        for picture, name in zip(opened if wanted(*FIGURES[OF_A_PICTURE:]) else (), names, strict=not only):
            tape = watch_for(model, [picture], [method for method in RECORDS.values() if method.supports(model)])
            for drawn in one_picture(tape, name, target, wanted, token):
                written += drawn.save(Path(out) / f"{name}-{drawn.name}", {**about, "picture": about_picture(picture)}, formats)
                bar.advance()
    return written


def whole_model(model: Classifier, pictures: Sequence[Picture], rival: Classifier | None = None, wanted: Wanted = ALL) -> Iterator[Drawn]:
    """Figures that belong to the model, not to one picture."""
    if wanted("filters"):
        yield _filters_drawn(filters(model), filters(rival) if rival is not None else None)
    if not model.config.is_transformer:
        return
    if model.config.positions in POSITIONED and wanted("positions"):
        positions = position_similarity(model)
        yield Drawn("positions", positions.draw(), positions.numbers(), positions.finding)
        yield Drawn("positions-rows-columns", positions.draw_distances(), positions.numbers(), positions.finding)
        if positions.class_token is not None:
            named = {"rows": "row of the patch", "columns": "column of the patch", "label": "cosine similarity", "signed": True}
            figure = matrix_figure(positions.class_token, title="The class token's position against the patches'", **named)
            yield Drawn(
                "positions-class-token", figure, {"similarity": positions.class_token}, "class token's position against the patches'"
            )
    if not wanted("distance"):
        return
    heads = watch_heads(model, list(pictures))
    sources = {"pictures": [about_picture(picture) for picture in pictures]}
    for name, measured in heads.items():
        yield Drawn(name, measured.draw(), measured.numbers(), f"{measured.name} per head and depth", sources)


def one_picture(
    tape: Tape, name: str, target: int | str | None = None, wanted: Wanted = ALL, token: Start | None = None
) -> Iterator[Drawn]:
    """Figures of the first picture on a tape."""
    assert tape.pictures is not None
    picture = tape.pictures[0]
    transformer = tape.model.config.is_transformer
    if transformer and wanted("patches"):
        title = f"{name} in patches of {_size(tape.config.patch_size)}"
        if tape.config.patch_stride != tape.config.patch_size:
            title += f", overlapping: one every {_size(tape.config.patch_stride)}"
        yield Drawn("patches", patch_figure(picture.original, tape.grid, picture.box, title), {"grid": np.array(tape.grid)}, title)
    if tape.config.classes and wanted("prediction"):
        ranking = rank(tape, tape.logits[0], picture.source, TOP)
        numbers = {"logits": to_numpy(tape.logits[0]), "indices": np.array(ranking.indices)}
        title = f"{name}: the {len(ranking)} most probable classes"
        yield Drawn("prediction", ranking.draw(title, picture.original), numbers, title, {"prediction": ranking.to_dict()["classes"]})
    if wanted("methods"):
        heats = [call(method, tape, target=target) for method in choose(tape.model)]
        yield sheet(tape, heats, name)
    if transformer and wanted("attention"):
        yield from _attention(tape, name, token)
    if transformer and wanted("rollout"):
        variants = {(heads, discard): rollout(tape, heads=heads, discard=discard) for discard in (0.0, 0.9) for heads in JOIN}
        captions = [f"{heads} of heads" for heads, _ in variants]
        options = {"row_labels": ["all weights", "strongest 10 %"], "columns": len(JOIN), "width": 1.8}
        figure = _maps(tape, list(variants.values()), captions, f"{name}: attention rollout", **options)
        grids = {f"{heads}_discard_{discard:g}": heat.grid for (heads, discard), heat in variants.items()}
        yield Drawn("rollout", figure, grids, f"{name}: attention rollout", {"maps": [heat.to_dict() for heat in variants.values()]})
    if transformer and tape.config.classes > 1 and wanted("classes"):
        likely = rank(tape, tape.logits[0], top=3)
        heats = [relevance(tape, target=index) for index in likely.indices]
        captions = [f"{label} ({percent(share)})" for label, share in likely]
        figure = _maps(tape, heats, captions, f"{name}: relevance for each class", picture=True, columns=4, width=1.8)
        yield Drawn(
            "classes", figure, {f"class_{heat.target}": heat.grid for heat in heats}, f"{name}: relevance of the most probable classes"
        )
    if transformer and tape.config.classes and wanted("ablation"):
        ablation = ablate(tape, target=target)
        yield Drawn("ablation", ablation.draw(), ablation.numbers(), f"{name}: heads and blocks switched off")
    if is_apart(tape.config) and tape.config.classes and wanted("shuffled"):
        moved = shuffle(tape)
        yield Drawn("shuffled", moved.draw(), moved.numbers(), f"{name}: {moved.finding}", {"finding": moved.finding})
    if transformer and wanted("norms"):
        found = health(tape)
        yield Drawn("norms", found.draw(), found.numbers(), found.finding)
    if not wanted("colours"):
        return
    layers = sorted({*np.linspace(0, len(tape.model.map_names()) - 1, 5).round().astype(int).tolist()})
    colours = [token_colours(tape, block=block) for block in layers]
    what = "block" if transformer else "stage"
    captions = ["picture as the model sees it", *(one.caption.replace("block", what) for one in colours)]
    figure = picture_sheet(
        [seen(picture), *(one.image() for one in colours)], captions, columns=3, title=f"{name}: tokens as colours", width=2.0
    )
    yield Drawn("colours", figure, {f"{what}_{one.block}": one.colours for one in colours}, f"{name}: first three components of the tokens")


def _attention(tape: Tape, name: str, token: Start | None = None) -> Iterator[Drawn]:
    """Class-token maps of every block and head; whole matrices, plain and normalised; one token's rows."""
    depth, count = tape.config.depth, tape.config.heads
    maps = np.stack([[attention(tape, block=block, head=head).grid for head in range(count)] for block in range(depth)])  # (L, heads, h, w)
    # A few artefact patches can outshine all others: each map's scale ends at its 97th percentile.
    scaled = maps / np.maximum(np.percentile(maps, 97, axis=(2, 3), keepdims=True), 1e-30)
    who = "class token" if tape.config.pool == "class" else "mean of the patches"
    title = f"{name}: where the {who} looks"
    label = "attention / 97th percentile of its map"
    figure = grid_of_grids(
        np.clip(scaled, 0, 1), title=title, label=label, signed=False, limits=(0.0, 1.0), rows="block", columns="head", longest=7.5
    )
    yield Drawn("attention", figure, {"maps": maps}, title)
    blocks = sorted({0, depth // 2, depth - 1})
    heads = list(range(min(count, 4)))
    for normalised in (False, True):
        chosen = [attention_matrix(tape, block=block, head=head, normalised=normalised) for block in blocks for head in heads]
        titles = [f"block {one.block}, head {one.head}" for one in chosen]
        title = f"{name}: attention matrices" + (", each row normalised" if normalised else "")
        values = np.stack([one.values for one in chosen])
        label = "deviations from the row's mean, cut at 3" if normalised else "attention (logarithmic)"
        figure = matrix_figure(
            np.clip(values, -3, 3) if normalised else values,
            titles=titles, title=title, prefix=tape.prefix, per_row=len(heads), signed=normalised, shared=True, log=not normalised,
            label=label,
        )  # fmt: skip
        stem = "attention-matrix-normalised" if normalised else "attention-matrix"
        yield Drawn(stem, figure, {"matrices": values, "blocks": np.array(blocks), "heads": np.array(heads)}, title)
    asking = (tape.grid[0] // 2, tape.grid[1] // 2) if token is None else token
    shown_heads = list(range(min(count, 8)))
    rows = [attention(tape, start=asking, block=block, head=head) for block in blocks for head in shown_heads]
    place = rows[0].start
    whose = f"the patch in row {place[0]}, column {place[1]}" if place is not None else f"the token {asking}"
    title = f"{name}: where {whose}{f' (row {asking} of the matrix)' if isinstance(asking, int) else ''} looks"
    labels = [f"block {block}" for block in blocks]
    captions = [f"head {heat.head}" for heat in rows]
    figure = _maps(tape, rows, captions, title, columns=len(shown_heads), row_labels=labels, width=1.5)
    grids = np.stack([heat.grid for heat in rows]).reshape(len(blocks), len(shown_heads), *tape.grid)
    yield Drawn("attention-patch", figure, {"maps": grids, "blocks": np.array(blocks), "token": np.array(str(asking))}, title)


def _maps(tape: Tape, heats: Sequence[Heatmap], captions: Sequence[str], title: str, *, picture: bool = False, **options: Any) -> Figure:
    """Maps side by side, each with its scale; after the picture itself where that is asked for."""
    images, scales = zip(*(clipped_overlay(heat, mode_of(tape)) for heat in heats), strict=True)
    if picture:
        assert tape.pictures is not None
        images, captions, scales = (enlarge(tape.pictures[0].original), *images), ["picture", *captions], (None, *scales)
    notes = [f"scales: {heats[0].unit}"] + ([COLOURS_END] if any(scale and scale.cut for scale in scales) else [])
    notes += [STARTS] if heats[0].start is not None else []
    scales = [scale and replace(scale, unit="") for scale in scales]  # one unit for all: the note says it
    return picture_sheet(images, captions, title=title, scales=scales, note="; ".join(notes), **options)


def _filters_drawn(own: Filters, rival: Filters | None) -> Drawn:
    if rival is None:
        return Drawn("filters", own.draw(), own.numbers(), own.title)
    figure = filters_beside([(own.shown, own.captions, own.title), (rival.shown, rival.captions, rival.title)])
    return Drawn("filters", figure, {**own.numbers(), "rival_tiles": rival.tiles}, f"{own.title}; beside: {rival.title}")


def _size(size: tuple[int, int]) -> str:
    return " × ".join(map(str, size))


def _whole_count(model: Classifier) -> int:
    """How many figures `whole_model` will make."""
    config = model.config
    if not model.config.is_transformer:
        return 1
    own = config.has_table and config.class_token and config.prefix_positions != "none"
    return 3 + (2 if config.positions in POSITIONED else 0) + int(own)


def _picture_count(model: Classifier) -> int:
    """How many figures `one_picture` will make."""
    classes = model.config.classes
    if not model.config.is_transformer:
        return 2 + int(classes > 0)
    return 9 + (2 + int(is_apart(model.config))) * int(classes > 0) + int(classes > 1)
