"""One sheet per picture: what the model says it is, and the chosen maps over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.base.errors import one_of
from vitral.base.progress import say
from vitral.base.text import percent
from vitral.draw.heatmap import Heatmap
from vitral.draw.result import Result
from vitral.draw.sheet import inside_sheet, overlay_mode
from vitral.look.choice import OPTION_DEFAULTS
from vitral.look.describe import about_model, about_picture, stems
from vitral.look.method import call, check_options, choose, watch_for
from vitral.look.predict import Ranking, rank
from vitral.look.watch import each, open_pictures
from vitral.model.classifier import Classifier
from vitral.model.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image

TOP = 5


@dataclass(frozen=True)
class Sheet(Result):
    """What a model says of one picture, and maps over it."""

    name: str
    """Of the picture."""
    heats: Sequence[Heatmap]
    captions: Sequence[str]
    ranking: Ranking | None
    """None: a model without classes."""
    picture: Image.Image | None
    verdicts: Mapping[str, str]
    """What an audit found about the methods of these maps."""
    mode: str = "bicubic"

    @property
    def answer(self) -> str:
        """`Egyptian cat, 81.3 %`"""
        return f"{self.ranking[0][0]}, {percent(self.ranking[0][1])}" if self.ranking else ""

    @property
    def title(self) -> str:
        return f"{self.name}: {self.answer}" if self.answer else self.name

    def facts(self) -> dict[str, Any]:
        """What stands beside the sheet."""
        return {
            "prediction": self.ranking.to_dict()["classes"] if self.ranking else None,
            "notes": {heat.method: heat.note for heat in self.heats if heat.note},
            **({"verdicts": self.verdicts} if self.verdicts else {}),
        }

    def numbers(self) -> dict[str, Any]:
        return {heat.method: heat.grid for heat in self.heats}

    def draw(self) -> Figure:
        return inside_sheet(self.picture, self.ranking or (), self.heats, self.captions, title=self.title, mode=self.mode)

    def save(self, stem: Path, about: dict[str, Any], formats: Sequence[str], caption: str = "") -> list[Path]:
        return super().save(stem, {**about, **self.facts()}, formats, caption or self.title)


def look_at(
    model: Classifier,
    pictures: Iterable[Any],
    out: str | Path,
    *,
    methods: Sequence[str] = (),
    top: int = TOP,
    formats: Sequence[str] = ("png",),
    command: str = "",
    verdicts: Mapping[str, str] | None = None,
    **options: Any,
) -> list[Path]:
    """One sheet per picture: what the model says it is, and the chosen maps over it, all from one pass.

    options: `target`, `start`, `block`, `head`, `exact`. One that none of the methods takes is refused; where only some take it, the
    others' maps have a note, and a line says so. verdicts: what an audit said of each method, shown beside its map.
    """
    if unknown := next((name for name in options if name not in OPTION_DEFAULTS), None):
        raise one_of("option", unknown, OPTION_DEFAULTS)
    chosen = choose(model, methods)
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
) -> Sheet:
    """Prediction and maps on one page."""
    ranking = rank(tape, tape.logits[item], top=top) if tape.config.classes else None
    picture = tape.pictures[item].original if tape.pictures else None
    judged = {heat.method: verdict for heat in heats if (verdict := (verdicts or {}).get(heat.method))}
    captions = [" · ".join([caption_of(tape, heat), *_short(judged.get(heat.method))]) for heat in heats]
    return Sheet(name, heats, captions, ranking, picture, judged, mode_of(tape))


def mode_of(tape: Tape) -> str:
    """How maps are laid over a picture: a transformer's coarse grid as the patches it is."""
    return overlay_mode(tape.grid) if tape.config.is_transformer else "bicubic"


def caption_of(tape: Tape, heat: Heatmap) -> str:
    """A map's title with the class by its name."""
    if not isinstance(heat.target, int):
        return heat.title
    return f"{heat.title.partition(' → ')[0]} → {tape.origin.class_name(heat.target)}"


def _short(verdict: str | None) -> list[str]:
    """A verdict without its reasons, which stand beside the sheet."""
    return [f"audit: {verdict.partition(':')[0]}"] if verdict else []
