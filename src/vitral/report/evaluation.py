"""What `vitral eval --out` leaves: scores, answers, small pictures, and one page that shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitral.base.files import make_folder, write_json
from vitral.base.layout import REPORT, scores_name
from vitral.model.classifier import Classifier
from vitral.report.render import write_page
from vitral.report.test_results import explainer_of, results_section
from vitral.run.answers import Answers
from vitral.train.evaluate import Scored


def write_evaluation(
    result: Scored, folder: str | Path, model: str, data: str, command: str = "", classifier: Classifier | None = None
) -> Path:
    """test.json, test.npz, test.webp and report.html in `folder`; the page's path. `classifier`: the model itself, for maps."""

    def picture(_: Answers, number: int) -> Any:
        assert result.split is not None
        return result.split.picture(int(result.positions[number]))

    classifier = classifier if result.split is not None else None
    folder = make_folder(Path(folder))
    scores = {"model": model, "data": data, "split": result.split.name if result.split else "all", **result.to_dict()}
    result.answers().write(folder)
    write_json(folder / scores_name(), scores)
    notes: list[str] = []
    page = folder / REPORT
    return write_page(
        "evaluation.html",
        page,
        title=f"{model} on {data}",
        lead=f"{result.headline} on {len(result.labels):,} pictures ({scores['split']})",
        test=results_section(scores, folder, page, notes, explainer=explainer_of(classifier, picture) if classifier is not None else None),
        notes=notes,
        command=command,
    )
