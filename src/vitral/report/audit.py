"""An audit → its folder: audit.json, figures, and one page with the verdicts first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitral.base import layout
from vitral.base.files import replacing_folder, write_json
from vitral.base.text import NOTHING
from vitral.draw.audit import example_figure, levels_figure, score_figure
from vitral.draw.provenance import save_figure
from vitral.look.describe import about_model
from vitral.model.classifier import Classifier
from vitral.report import inline
from vitral.report.page import Section, part, section, write_page
from vitral.study.audit.audit import Audit
from vitral.study.audit.tests import LEVELS
from vitral.study.audit.verdict import TESTS

_CHANCE = {"planted patch": 0.5, "masks": 0.5, "four in one": 0.25, "permuted weights": 0.0, "salience order": 0.0}
_CHANCE |= {test: 0.0 for test in TESTS if test.startswith("removal")}


def write_audit(audit: Audit, model: Classifier, folder: str | Path, data: str, command: str = "") -> Path:
    """Everything of an audit into `folder`, which it replaces; the path of the page."""
    folder = Path(folder)
    about = about_model(model, command)
    verdicts = {row.method: row.verdict for row in audit.rows}
    measured = [test for test in TESTS if any(test in row.tests for row in audit.rows)]
    means = {test: {row.method: row.tests[test][:3] for row in audit.rows if test in row.tests} for test in measured}
    values = {**audit.to_dict(), "data": data, "model": about["model"]["sha256"], "command": command}
    with replacing_folder(folder) as new:
        figures = new / layout.FIGURES
        title = f"{len(audit.rows) - 3} methods and three references on {audit.pictures} pictures (95 % intervals over pictures)"
        save_figure(score_figure(means, verdicts, _CHANCE, title), figures / "a-scores", {}, about, title, ("png",))
        title = "How far the maps stay the same when the weights are permuted"
        if audit.levels:
            save_figure(levels_figure(audit.levels, LEVELS, title), figures / "b-permuted", {}, about, title, ("png",))
        for number, example in enumerate(audit.examples):
            title = f"{example.test}: {example.caption}"
            figure = example_figure(example.image, example.maps, verdicts, title, example.inside)
            save_figure(figure, figures / f"c{number}-{example.test.replace(' ', '-')}", example.maps, about, title, ("png",))
        write_json(new / layout.VERDICTS, values)
        write_page(
            new / layout.REPORT,
            f"Audit of {about['model']['source']}",
            _sections(audit, figures, measured, command),
            lead=f"Which explanations of this model can be trusted, on {audit.pictures} pictures of {data}",
            notes=list(audit.notes),
        )
    return folder / layout.REPORT


def _sections(audit: Audit, figures: Path, measured: list[str], command: str) -> list[Section]:
    few = f"{audit.pictures} pictures are few: a verdict can change when others are drawn. Before you publish a map, audit with "
    scores = [[row.method, *(_interval(row.tests.get(test)) for test in measured)] for row in audit.rows]
    return [
        section(
            "Verdicts",
            part("table", [[row.method, row.verdict, row.reason] for row in audit.rows], ["method", "verdict", "why"]),
            "A verdict is about this model on these pictures, not about the method as such. No test is beyond doubt: a map is to "
            "be used when it passes those that ask different questions.",
            f"{few}--pictures 96." if audit.pictures < 96 else "",
        ),
        section(
            "Numbers",
            part("table", scores, ["method", *measured]),
            "Mean over pictures and its 95 % interval (Student's t over pictures).",
            part("table", [[test, TESTS[test]] for test in measured], ["test", "what it measures"], "what the tests measure"),
        ),
        section("Figures", part("figures", inline.of_folder(figures, "write the audit again"))),
        section("Audit it again", part("code", command)),
    ]


def _interval(score: Any) -> str:
    """`0.44 (0.39 to 0.51)`."""
    if score is None:
        return NOTHING
    mean, low, high = (f"{value:.2f}".replace("-", "−") for value in score[:3])
    return f"{mean} ({low} to {high})"
