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
from vitral.report.render import write_page
from vitral.study.audit.audit import Audit
from vitral.study.audit.tests import LEVELS
from vitral.study.audit.verdict import TESTS

CHANCE = {"planted patch": 0.5, "masks": 0.5, "four in one": 0.25, "permuted weights": 0.0, "salience order": 0.0}
CHANCE |= {test: 0.0 for test in TESTS if test.startswith("removal")}


def write_audit(found: Audit, model: Classifier, folder: str | Path, data: str, command: str = "") -> Path:
    """Everything of an audit into `folder`, which it replaces; the path of the page."""
    folder = Path(folder)
    about = about_model(model, command)
    verdicts = {row.method: row.verdict for row in found.rows}
    measured = [test for test in TESTS if any(test in row.tests for row in found.rows)]
    means = {test: {row.method: row.tests[test][:3] for row in found.rows if test in row.tests} for test in measured}
    values = {**found.to_dict(), "data": data, "model": about["model"]["sha256"], "command": command}
    with replacing_folder(folder) as new:
        figures = new / layout.FIGURES
        title = f"{len(found.rows) - 3} methods and three references on {found.pictures} pictures (95 % intervals over pictures)"
        save_figure(score_figure(means, verdicts, CHANCE, title), figures / "a-scores", {}, about, title, ("png",))
        title = "How far the maps stay the same when the weights are permuted"
        if found.levels:
            save_figure(levels_figure(found.levels, LEVELS, title), figures / "b-permuted", {}, about, title, ("png",))
        for number, example in enumerate(found.examples):
            title = f"{example.test}: {example.caption}"
            figure = example_figure(example.image, example.maps, verdicts, title, example.inside)
            save_figure(figure, figures / f"c{number}-{example.test.replace(' ', '-')}", example.maps, about, title, ("png",))
        write_json(new / layout.VERDICTS, values)
        write_page(
            "audit.html",
            new / layout.REPORT,
            title=f"Audit of {about['model']['source']}",
            lead=f"Which explanations of this model can be trusted, on {found.pictures} pictures of {data}",
            notes=list(found.notes),
            pictures=found.pictures,
            verdicts=[[row.method, row.verdict, row.reason] for row in found.rows],
            table_of=(["method", *measured], [[row.method, *(shown(row.tests.get(test)) for test in measured)] for row in found.rows]),
            tests=[[test, TESTS[test]] for test in measured],
            figures=inline.of_folder(figures, "write the audit again"),
            command=command,
        )
    return folder / layout.REPORT


def shown(found: Any) -> str:
    """`0.44 (0.39 to 0.51)`."""
    if found is None:
        return NOTHING
    mean, low, high = (f"{value:.2f}".replace("-", "−") for value in found[:3])
    return f"{mean} ({low} to {high})"
