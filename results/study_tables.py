"""Tables of studies, computed anew from the answers of their cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from evidence import mean_text, points

from vitral.base import layout
from vitral.base.files import read_json
from vitral.base.text import table
from vitral.report.study import APART, values_of
from vitral.run.answers import Answers
from vitral.study.fight.growth import Gap, gap_changes, gaps, power_laws
from vitral.study.fight.pretraining import REACH, against_scratch, way_name
from vitral.study.fight.statistics import compare_pairs
from vitral.study.fight.table import Outcome

HEADINGS = {"budget": "budget", **APART}


def study_table(*paths: Path) -> str:
    """The table and the tests of one study, computed anew from the answers of its cells; of several that ask one thing with one budget
    after another, all tests counted together."""
    results = [(path, read_json(path / layout.RESULT)) for path in paths]
    cells = [
        {**cell, "budget": result["budget"], "path": path / layout.CELLS / cell["cell"]}
        for path, result in results
        for cell in result["cells"]
    ]
    rows = [{**row, "budget": result["budget"]} for _, result in results for row in result["rows"]]
    groups: dict[tuple[Any, ...], dict[str, list[np.ndarray]]] = {}
    apart = [name for name in HEADINGS if len({cell.get(name) for cell in cells}) > 1] or ["size"]
    for cell in cells:
        models = groups.setdefault(tuple(cell.get(name, 0) for name in apart), {})
        models.setdefault(cell["model"], []).append(Answers.read(cell["path"]).right)
    own_rows = [row for row in rows if row["split"] == cells[0]["split"]]
    lines, repeated = [], {}
    for group, models in groups.items():
        for model, seeds in models.items():
            own = next(row for row in own_rows if (row["model"], *(row.get(name, 0) for name in apart)) == (model, *group))
            lines.append(
                [
                    *values_of(dict(zip(apart, group, strict=False)), apart),
                    model,
                    mean_text(np.stack(seeds)),
                    str(len(seeds)),
                    f"{own['parameters']:,}",
                    f"{own['seconds']:.1f}",
                ]
            )
        repeated[group] = {model: np.stack(seeds) for model, seeds in models.items() if len(seeds) > 1}
    changing = _gaps(repeated, apart)
    repeated |= _against_scratch(repeated, apart)
    tests = compare_pairs(repeated | changing)
    pairs = [(group, pair) for group in repeated for pair in tests[group]]
    where = [HEADINGS[name] for name in apart]
    aligned = "r" * len(apart) + "lr"
    header = [*where, "model", "test accuracy (95 %)", "seeds", "parameters", "seconds"]
    asked = dict.fromkeys(result["data"] for _, result in results), dict.fromkeys(result["budget"] for _, result in results)
    parts = [f"{', '.join(' and '.join(some) for some in asked)}.", table(lines, header, aligned, markdown=True)]
    if pairs:
        tested = [
            [
                *values_of(dict(zip(apart, group, strict=False)), apart),
                f"{pair.ranked[0]} − {pair.ranked[1]}",
                points(pair),
                pair.p_text,
                "yes" if pair.different else "no",
            ]
            for group, pair in pairs
        ]
        head = [*where, "pair", "points (95 %)", f"Holm over {sum(map(len, tests.values()))}", "told apart"]
        parts.append(table(tested, head, aligned, markdown=True))
    for way in dict.fromkeys(gap.way for gap in changing):
        parts += [f"- {way + ': ' if way else ''}{change}." for change in gap_changes(tests, way)]
    parts += [f"- {name}: {crossing}." for path, result in results for name, crossing in _crossings(path, result).items()]
    return "\n\n".join(parts)


def _gaps(repeated: dict[Any, dict[str, np.ndarray]], apart: list[str]) -> dict[Gap, dict[str, np.ndarray]]:
    """What two models gained from the smallest size, of data or of pre-training, to the largest."""
    name = next((name for name in ("pretrained", "size") if name in apart), "")
    if not name:
        return {}
    ways: dict[str, dict[int, Any]] = {}
    for group in repeated:
        values = dict(zip(apart, group, strict=True))
        if size := values[name]:
            ways.setdefault(way_name(values["shots"]) if "shots" in values else "", {})[size] = group
    changes: dict[Gap, dict[str, np.ndarray]] = {}
    for way, sizes in ways.items():
        if len(sizes) > 1:
            changes |= gaps(repeated[sizes[min(sizes)]], repeated[sizes[max(sizes)]], way)
    return changes


def _crossings(path: Path, result: dict[str, Any]) -> dict[str, str]:
    """Where the lines of two models cross; which models are a family of a compute study, only its own result says."""
    if result["kind"] not in ("data", "pretraining"):
        return {name: crossing["text"] for name, crossing in result.get("crossings", {}).items()}
    axis, reach = ("pretrained", REACH) if result["kind"] == "pretraining" else ("size", 1.0)
    ways: dict[int, dict[str, list[Outcome]]] = {}
    for cell in (Outcome(**cell) for cell in result["cells"]):
        if getattr(cell, axis):
            ways.setdefault(cell.shots, {}).setdefault(cell.model, []).append(cell)

    def right(cells: Sequence[Outcome]) -> np.ndarray:
        return np.stack([Answers.read(path / layout.CELLS / cell.cell).right for cell in cells])

    return {
        f"{way_name(shots) + ': ' if result['kind'] == 'pretraining' else ''}{name}": str(crossing)
        for shots, models in sorted(ways.items())
        for name, crossing in power_laws(models, axis, right, reach)[1].items()
    }


def _against_scratch(repeated: dict[Any, dict[str, np.ndarray]], apart: list[str]) -> dict[Any, dict[str, np.ndarray]]:
    """Each model that was fine-tuned after the most pictures, beside itself from scratch."""
    if "pretrained" not in apart:
        return {}
    tuned = {group[apart.index("pretrained")]: group for group in repeated if "shots" not in apart or not group[apart.index("shots")]}
    most, scratch = tuned[max(tuned)], repeated.get(tuned.get(0, ()), {})
    return {(*most, name): pair for name, pair in against_scratch(repeated[most], scratch).items()}


def study_means(path: Path) -> str:
    """`vit 92.50 (90.10 to 94.20)` for each model, where they were trained with the largest part of everything."""
    cells = read_json(path / layout.RESULT)["cells"]
    most = {name: max(cell.get(name, 0) for cell in cells) for name in ("size", "pretrained", "share")}
    chosen = [cell for cell in cells if not cell.get("shots") and all(cell.get(name, 0) in (0, value) for name, value in most.items())]
    texts, seeds = [], 0
    for model in dict.fromkeys(cell["model"] for cell in chosen):
        right = np.stack([Answers.read(path / layout.CELLS / cell["cell"]).right for cell in chosen if cell["model"] == model])
        texts.append(f"{model} {mean_text(right)}")
        seeds = len(right)
    return f"{'; '.join(texts)}; n = {seeds}"
