"""Sections that the report of a run and that of a study share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitral.base.errors import DataError
from vitral.base.files import read_json
from vitral.report.page import SIGNATURES, Page

MOST_FIGURES = 120


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that must hold an object."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise DataError(f"{path} holds no JSON object", "it may be damaged: write it again")
    return data


def optional_object(page: Page, path: Path, why: str) -> dict[str, Any]:
    """The object of a file, or an empty one and a note on the page that says what is missing and what to do."""
    if not path.exists():
        page.note(f"{path.name} is missing: {why}")
        return {}
    try:
        return read_object(path)
    except DataError as error:
        page.note(str(error))
        return {}


def figures_section(page: Page, folder: Path, hint: str) -> None:
    """All pictures under figures/, with the captions and commands of the JSON files beside them."""
    page.section("Figures")
    pictures = figure_files(folder / "figures")
    if not pictures:
        page.note(f"there are no figures yet: {hint}")
    for path in pictures[:MOST_FIGURES]:
        caption, command = _about(path)
        page.picture(path, caption, command)
    if len(pictures) > MOST_FIGURES:
        page.note(f"{len(pictures) - MOST_FIGURES} more figures were left out; they are in {folder.name}/figures")


def figure_files(folder: Path) -> list[Path]:
    """One file per figure, PNG before SVG; links are not followed."""
    found: dict[Path, Path] = {}
    for ending in SIGNATURES:
        for path in sorted(folder.rglob(f"*{ending}")):
            if path.is_file() and not path.is_symlink():
                found.setdefault(path.with_suffix(""), path)
    return [found[stem] for stem in sorted(found)]


def environment_section(page: Page, facts: dict[str, Any]) -> None:
    page.section("Environment")
    if facts:
        page.facts(facts)
    else:
        page.note("the machine and the versions were not recorded")


def _about(picture: Path) -> tuple[str, str]:
    beside = picture.with_suffix(".json")
    try:
        record = read_object(beside) if beside.exists() else {}
    except DataError:
        record = {}
    words = picture.stem.replace("_", " ").replace("-", " ")
    caption = " – ".join(str(part) for part in (record.get("caption") or words, record.get("note")) if part)
    return caption, str(record.get("command") or "")
