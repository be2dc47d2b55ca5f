"""Every figure of the ViT literature from one model: the numbers here, the pixels in `draw`, the provenance beside each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vitral.base.errors import UsageError, one_of
from vitral.base.numbers import to_numpy
from vitral.base.picture import Picture
from vitral.base.progress import progress, say
from vitral.base.text import percent
from vitral.config import ModelConfig
from vitral.draw.heatmap import Heatmap
from vitral.draw.matrices import grid_of_grids, matrix_figure
from vitral.draw.overlay import enlarge
from vitral.draw.provenance import save_figure
from vitral.draw.result import Result
from vitral.draw.sheet import COLOURS_END, STARTS, clipped_overlay
from vitral.draw.tiles import filters_beside, patch_figure, picture_sheet
from vitral.look.attention import attention, attention_matrix
from vitral.look.choice import Start, find_target
from vitral.look.describe import about_model, about_picture, seen, stems
from vitral.look.distance import watch_heads
from vitral.look.filters import filters
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


@dataclass
class Subject:
    """What figures are made of: a model, or one picture of it; and where they are written."""

    model: Classifier
    pictures: Sequence[Picture]
    folder: Path
    about: dict[str, Any]
    formats: Sequence[str] = FORMATS
    rival: Classifier | None = None
    """A CNN or ResNet whose first filters are drawn beside the ViT's."""
    target: int | str | None = None
    """The class to explain; None: the predicted one."""
    token: Start | None = None
    """Whose rows of the attention matrix are drawn as maps; None: the middle patch."""
    name: str = ""
    """Of the one picture; empty: all pictures."""
    written: list[Path] = field(default_factory=list)

    @cached_property
    def tape(self) -> Tape:
        """Of the one picture, with all that the methods read."""
        return watch_for(self.model, self.pictures, [method for method in RECORDS.values() if method.supports(self.model)])

    def add(self, stem: str, figure: Figure, numbers: dict[str, Any], caption: str, facts: dict[str, Any] | None = None) -> None:
        """Write a figure with its numbers; `facts` stand beside it."""
        path = self.folder / (f"{self.name}-{stem}" if self.name else stem)
        self.written += save_figure(figure, path, numbers, {**self.about, **(facts or {})}, caption, self.formats)[: len(self.formats)]

    def add_result(self, stem: str, result: Result, caption: str, facts: dict[str, Any] | None = None) -> None:
        self.add(stem, result.draw(), result.numbers(), caption, facts)


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
    only: Sequence[str] = (),
    formats: Sequence[str] = FORMATS,
    command: str = "",
    quiet: bool = False,
    **options: Any,
) -> list[Path]:
    """All figures that apply to the model, for each picture and over all, into `out`; the paths of the pictures written.

    only: names out of FIGURES; the others are not made. options: `rival`, `target` and `token`, see `Subject`.
    """
    check_figures(only)
    opened = open_pictures(model, each(pictures))
    whole = Subject(model, opened, Path(out), about_model(model, command), formats, **options)
    if whole.target is not None:
        find_target(watch(model, opened[:1]), 0, whole.target)  # a wrong name is an error before anything is written
    chosen = only or FIGURES
    if model.config.is_transformer and model.config.positions not in POSITIONED and not quiet and "positions" in chosen:
        say(f"no figures of positions: with positions = {model.config.positions} there are no vectors to compare")
    entries = [entry for name, entry in FIGURES.items() if name in chosen and entry.applies(model)]
    of_model, of_picture = ([entry for entry in entries if entry.of_picture is one] for one in (False, True))
    with progress("Drawing", total=len(of_model) + len(of_picture) * len(opened), quiet=quiet) as bar:
        for entry in of_model:
            entry.make(whole)
            bar.advance()
        for picture, name in zip(opened, stems(opened), strict=True):
            subject = replace(whole, pictures=[picture], about={**whole.about, "picture": about_picture(picture)}, name=name)
            for entry in of_picture:
                entry.make(subject)
                bar.advance()
    return whole.written


# ---- of the model --------------------------------------------------------------------------------------------------------------


def _filters(subject: Subject) -> None:
    own = filters(subject.model)
    if subject.rival is None:
        return subject.add_result("filters", own, own.title)
    rival = filters(subject.rival)
    figure = filters_beside([(own.shown, own.captions, own.title), (rival.shown, rival.captions, rival.title)])
    return subject.add("filters", figure, {**own.numbers(), "rival_tiles": rival.tiles}, f"{own.title}; beside: {rival.title}")


def _positions(subject: Subject) -> None:
    """Each position with all others, rows against columns, and the class token's position."""
    positions = position_similarity(subject.model)
    subject.add_result("positions", positions, positions.finding)
    subject.add("positions-rows-columns", positions.draw_distances(), positions.numbers(), positions.finding)
    if positions.class_token is not None:
        labels = {"rows": "row of the patch", "columns": "column of the patch", "label": "cosine similarity", "signed": True}
        caption = "class token's position against the patches'"
        figure = matrix_figure(positions.class_token, title=f"The {caption}", **labels)
        subject.add("positions-class-token", figure, {"similarity": positions.class_token}, caption)


def _distance(subject: Subject) -> None:
    """Mean attention distance and entropy of each head, over all pictures."""
    sources = {"pictures": [about_picture(picture) for picture in subject.pictures]}
    for stem, heads in watch_heads(subject.model, list(subject.pictures)).items():
        subject.add_result(stem, heads, f"{heads.name} per head and depth", sources)


# ---- of one picture ------------------------------------------------------------------------------------------------------------


def _patches(subject: Subject) -> None:
    (picture,), config = subject.pictures, subject.model.config
    title = f"{subject.name} in patches of {_size(config.patch_size)}"
    if config.patch_stride != config.patch_size:
        title += f", overlapping: one every {_size(config.patch_stride)}"
    grid = subject.tape.grid
    subject.add("patches", patch_figure(picture.original, grid, picture.box, title), {"grid": np.array(grid)}, title)


def _prediction(subject: Subject) -> None:
    (picture,), logits = subject.pictures, subject.tape.logits[0]
    ranking = rank(subject.tape, logits, picture.source, TOP)
    title = f"{subject.name}: the {len(ranking)} most probable classes"
    numbers = {"logits": to_numpy(logits), "indices": np.array(ranking.indices)}
    subject.add("prediction", ranking.draw(title, picture.original), numbers, title, {"prediction": ranking.to_dict()["classes"]})


def _methods(subject: Subject) -> None:
    page = sheet(subject.tape, [call(method, subject.tape, target=subject.target) for method in choose(subject.model)], subject.name)
    subject.add_result("methods", page, page.title, page.facts())


def _attention(subject: Subject) -> None:
    """Class-token maps of every block and head; whole matrices, plain and normalised; one token's rows."""
    tape, name, token = subject.tape, subject.name, subject.token
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
    subject.add("attention", figure, {"maps": maps}, title)
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
        subject.add(stem, figure, {"matrices": values, "blocks": np.array(blocks), "heads": np.array(heads)}, title)
    asking = (tape.grid[0] // 2, tape.grid[1] // 2) if token is None else token
    shown_heads = list(range(min(count, 8)))
    rows = [attention(tape, start=asking, block=block, head=head) for block in blocks for head in shown_heads]
    patch = rows[0].start
    whose = f"the patch in row {patch[0]}, column {patch[1]}" if patch is not None else f"the token {asking}"
    title = f"{name}: where {whose}{f' (row {asking} of the matrix)' if isinstance(asking, int) else ''} looks"
    labels = [f"block {block}" for block in blocks]
    captions = [f"head {heat.head}" for heat in rows]
    figure = _maps(tape, rows, captions, title, columns=len(shown_heads), row_labels=labels, width=1.5)
    grids = np.stack([heat.grid for heat in rows]).reshape(len(blocks), len(shown_heads), *tape.grid)
    subject.add("attention-patch", figure, {"maps": grids, "blocks": np.array(blocks), "token": np.array(str(asking))}, title)


def _rollout(subject: Subject) -> None:
    variants = {(heads, discard): rollout(subject.tape, heads=heads, discard=discard) for discard in (0.0, 0.9) for heads in JOIN}
    captions = [f"{heads} of heads" for heads, _ in variants]
    title = f"{subject.name}: attention rollout"
    options = {"row_labels": ["all weights", "strongest 10 %"], "columns": len(JOIN), "width": 1.8}
    figure = _maps(subject.tape, list(variants.values()), captions, title, **options)
    grids = {f"{heads}_discard_{discard:g}": heat.grid for (heads, discard), heat in variants.items()}
    subject.add("rollout", figure, grids, title, {"maps": [heat.to_dict() for heat in variants.values()]})


def _classes(subject: Subject) -> None:
    likely = rank(subject.tape, subject.tape.logits[0], top=3)
    heats = [relevance(subject.tape, target=index) for index in likely.indices]
    captions = [f"{label} ({percent(share)})" for label, share in likely]
    figure = _maps(subject.tape, heats, captions, f"{subject.name}: relevance for each class", picture=True, columns=4, width=1.8)
    numbers = {f"class_{heat.target}": heat.grid for heat in heats}
    subject.add("classes", figure, numbers, f"{subject.name}: relevance of the most probable classes")


def _ablation(subject: Subject) -> None:
    subject.add_result("ablation", ablate(subject.tape, target=subject.target), f"{subject.name}: heads and blocks switched off")


def _shuffled(subject: Subject) -> None:
    shuffled = shuffle(subject.tape)
    subject.add_result("shuffled", shuffled, f"{subject.name}: {shuffled.finding}", {"finding": shuffled.finding})


def _norms(subject: Subject) -> None:
    norms = health(subject.tape)
    subject.add_result("norms", norms, norms.finding)


def _colours(subject: Subject) -> None:
    (picture,), model = subject.pictures, subject.model
    layers = sorted({*np.linspace(0, len(model.map_names()) - 1, 5).round().astype(int).tolist()})
    colours = [token_colours(subject.tape, block=block) for block in layers]
    what = "block" if model.config.is_transformer else "stage"
    captions = ["picture as the model sees it", *(one.caption.replace("block", what) for one in colours)]
    images = [seen(picture), *(one.image() for one in colours)]
    figure = picture_sheet(images, captions, columns=3, title=f"{subject.name}: tokens as colours", width=2.0)
    numbers = {f"{what}_{one.block}": one.colours for one in colours}
    subject.add("colours", figure, numbers, f"{subject.name}: first three components of the tokens")


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


def _size(size: tuple[int, int]) -> str:
    return " × ".join(map(str, size))


class Figures(NamedTuple):
    """Figures that are made together."""

    make: Callable[[Subject], None]
    of_picture: bool = True
    """Made for each picture; else once for the model."""
    attention: bool = True
    """Of transformers alone."""
    classes: int = 0
    """The fewest classes it takes."""
    suits: Callable[[ModelConfig], bool] = lambda _: True

    def applies(self, model: Classifier) -> bool:
        config = model.config
        return (config.is_transformer or not self.attention) and config.classes >= self.classes and self.suits(config)


FIGURES = {
    "filters": Figures(_filters, of_picture=False, attention=False),
    "positions": Figures(_positions, of_picture=False, suits=lambda config: config.positions in POSITIONED),
    "distance": Figures(_distance, of_picture=False),
    "patches": Figures(_patches),
    "prediction": Figures(_prediction, attention=False, classes=1),
    "methods": Figures(_methods, attention=False),
    "attention": Figures(_attention),
    "rollout": Figures(_rollout),
    "classes": Figures(_classes, classes=2),
    "ablation": Figures(_ablation, classes=1),
    "shuffled": Figures(_shuffled, classes=1, suits=is_apart),
    "norms": Figures(_norms),
    "colours": Figures(_colours, attention=False),
}
"""Name → figures. `only` may name them; positions, distance (with entropy) and attention are several each."""
