"""The gallery: what the page shows is in the script's list, was made by the command that stands there, and cheap figures are made anew."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.commands import parse_line
from tests.scripts import load_script

from vitral.base.files import read_json, sha256_bytes, sha256_file
from vitral.cli import VERBS, main

ROOT = Path(__file__).parents[1]
LARGEST = 5_000_000
"""Bytes of all pictures and photographs."""


gallery = load_script(ROOT / "docs/make_gallery.py")
EVERY = [(folder, figure) for folder, figures in gallery.LISTS.items() for figure in figures]
PROVENANCE: dict[str, dict[str, Any]] = {folder: read_json(gallery.IMAGES / folder / gallery.PROVENANCE) for folder in gallery.LISTS}
COMMANDS = sorted({line for _, one in EVERY for text in (one.command, *map(gallery.PREPARED.get, one.needs)) for line in text.splitlines()})


def test_the_page_is_what_the_list_makes() -> None:
    text = gallery.PAGE.read_text(encoding="utf-8")
    assert gallery.page(PROVENANCE["gallery"]) == text, "python docs/make_gallery.py --page"
    shown = re.findall(r"!\[.*?\]\(images/gallery/([\w-]+)\.webp\)", text)
    assert sorted(shown) == sorted(figure.name for figure in gallery.FIGURES) and len(set(shown)) >= 20


@pytest.mark.parametrize("folder", gallery.LISTS)
def test_no_picture_lies_about_that_nobody_makes(folder: str) -> None:
    names = [figure.name for figure in gallery.LISTS[folder]]
    names += read_json(gallery.IMAGES / "readme/pictures.json") if folder == "readme" else []  # the films of docs/make_readme_pictures.py
    assert {path.stem for path in (gallery.IMAGES / folder).glob("*.webp")} == set(names) and len(set(names)) == len(names)


@pytest.mark.parametrize(("folder", "figure"), EVERY, ids=lambda value: getattr(value, "name", value))
def test_every_figure_says_where_it_came_from(folder: str, figure: Any) -> None:
    about, path = PROVENANCE[folder][figure.name], gallery.IMAGES / folder / f"{figure.name}.webp"
    assert about["command"] == figure.command and about["prepared"] == [gallery.PREPARED[name] for name in figure.needs]
    assert about["sha256"] == sha256_file(path), f"python docs/make_gallery.py --only {figure.name}"
    assert not figure.model or len(about["weights"]["sha256"]) == 64
    photographs = [name for name in figure.pictures if (gallery.PHOTOS / name).is_file()]
    assert about["photographs"] == {name: sha256_file(gallery.PHOTOS / name) for name in photographs}
    assert set(figure.pictures) <= set(gallery.PHOTOGRAPHS)
    assert figure.title and figure.sees.endswith(".") and figure.never.endswith(".")
    with Image.open(path) as image:
        assert list(image.size) == about["size"] and image.width <= figure.width


def test_the_gallery_is_small_and_its_photographs_are_named() -> None:
    photographs = {path.name: path for path in gallery.PHOTOS.iterdir()}
    assert set(photographs) == {name for name in gallery.PHOTOGRAPHS if name.endswith(".jpg")}
    assert all(one.author and one.licence and one.source for one in gallery.PHOTOGRAPHS.values())
    assert sum(path.stat().st_size for path in (*photographs.values(), *(gallery.IMAGES / "gallery").iterdir())) < LARGEST


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_parses(line: str) -> None:
    program, verb, *arguments = shlex.split(line)
    assert program == "vitral"
    assert verb in VERBS
    parse_line(verb, arguments)


def test_a_figure_is_made_by_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitral.draw.provenance.DPI", 40)
    work, out = tmp_path / "work", tmp_path / "out"
    gallery.prepare(work, None)
    assert {path.name for path in (work / "photos").iterdir()} >= {"cat.jpg", "espresso.jpg"}
    monkeypatch.chdir(work)
    shorter = ["train", "digits", "--epochs", "1", "--threads", "1", "--snapshots", "2", "--out", "runs/digits"]
    assert main(shorter) == 0
    chosen = {figure.name: figure for figure in gallery.FIGURES}
    sheet = gallery.make(chosen["film-sheet"], work, out)
    film = gallery.make(chosen["film"], work, out)
    for name, about in (("film-sheet", sheet), ("film", film)):
        assert about["sha256"] == sha256_bytes((out / f"{name}.webp").read_bytes())
        assert about["weights"]["sha256"] == sha256_file(work / "runs/digits/model.safetensors")
    with Image.open(out / "film.webp") as moving, Image.open(out / "film-sheet.webp") as still:
        assert moving.n_frames >= 2 and not getattr(still, "is_animated", False)  # type: ignore[attr-defined]
    assert Path.cwd() == work
    with pytest.raises(SystemExit, match="exit code"):
        gallery.run("vitral film runs/nothing")
