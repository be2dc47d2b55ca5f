"""One sheet per picture: what the model says it is, and the chosen maps over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitral.base.progress import say
from vitral.base.text import percent
from vitral.draw.heatmap import Heatmap
from vitral.draw.sheet import inside_sheet
from vitral.look.describe import Drawn, about_model, about_picture, stems
from vitral.look.method import call, check_options, choose, watch_for
from vitral.look.predict import rank
from vitral.look.watch import each, open_pictures
from vitral.model.classifier import Classifier
from vitral.model.tape import Tape

TOP = 5
COARSE = 8
"""Patches a side up to which maps are drawn patch by patch."""


def look_at(
    model: Classifier,
    pictures: Iterable[Any],
    out: str | Path,
    *,
    methods: Sequence[str] = (),
    target: int | str | None = None,
    start: Any = "class",
    block: int | None = None,
    head: int | None = None,
    exact: bool = False,
    top: int = TOP,
    formats: Sequence[str] = ("png",),
    command: str = "",
    verdicts: Mapping[str, str] | None = None,
) -> list[Path]:
    """One sheet per picture: what the model says it is, and the chosen maps over it, all from one pass.

    An option that none of the methods takes is refused; where only some take it, the others' maps have a note, and a line says so.
    verdicts: what an audit said of each method, shown beside its map.
    """
    chosen = choose(model, methods)
    options = {"target": target, "start": start, "block": block, "head": head, "exact": exact}
    for remark in check_options(chosen, **options):
        say(remark)
    opened = open_pictures(model, each(pictures))
    about = about_model(model, command)
    written: list[Path] = []
    for picture, name in zip(opened, stems(opened), strict=True):
        tape = watch_for(model, [picture], chosen)
        heats = [call(method, tape, **options) for method in chosen]
        record = {**about, "picture": about_picture(picture), "maps": [heat.to_dict() for heat in heats]}
        written += sheet(tape, heats, name, top, verdicts=verdicts).save(Path(out) / name, record, formats)
    return written


def sheet(
    tape: Tape, heats: Sequence[Heatmap], name: str, top: int = TOP, item: int = 0, verdicts: Mapping[str, str] | None = None
) -> Drawn:
    """Prediction and maps on one page."""
    ranking = rank(tape, tape.logits[item], top=top) if tape.config.classes else None
    picture = tape.pictures[item].original if tape.pictures else None
    judged = {heat.method: told for heat in heats if (told := (verdicts or {}).get(heat.method))}
    captions = [" · ".join([caption_of(tape, heat), *_short(judged.get(heat.method))]) for heat in heats]
    title = name if ranking is None else f"{name}: {ranking[0][0]}, {percent(ranking[0][1])}"
    rows = ([n for n, _ in ranking], ranking.logits, [p for _, p in ranking]) if ranking else ((), (), ())
    figure = inside_sheet(picture, *rows, heats, captions, title=title, mode=mode_of(tape))
    numbers = {heat.method: heat.grid for heat in heats}
    provenance = {
        "prediction": ranking.to_dict()["classes"] if ranking else None,
        "notes": {heat.method: heat.note for heat in heats if heat.note},
        **({"verdicts": judged} if judged else {}),
    }
    return Drawn("methods", figure, numbers, title, provenance)


def mode_of(tape: Tape) -> str:
    """A coarse grid is shown as the patches it is: smoothing would put a peak where no patch has it."""
    return "patches" if tape.config.is_transformer and max(tape.grid) <= COARSE else "bicubic"


def caption_of(tape: Tape, heat: Heatmap) -> str:
    """A map's title with the class by its name."""
    if not isinstance(heat.target, int):
        return heat.title
    return f"{heat.title.partition(' → ')[0]} → {tape.origin.class_name(heat.target)}"


def _short(verdict: str | None) -> list[str]:
    """A verdict without its reasons, which stand beside the sheet."""
    return [f"audit: {verdict.partition(':')[0]}"] if verdict else []
