"""What is released: the wheel and the source archive hold what they must and nothing else, and what is written beside them is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from vitral.base.lazy import EXTRAS
from vitral.base.version import __version__

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Of the Citation File Format 1.2.0: what must be there, and what may be.
REQUIRED = {"authors", "cff-version", "message", "title"}
ALLOWED = REQUIRED | {"abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords", "license", "license-url"}
ALLOWED |= {"preferred-citation", "references", "repository", "repository-artifact", "repository-code", "type", "url", "version"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[zipfile.ZipFile, tarfile.TarFile]:
    """Both, by the build backend itself: what `python -m build` would make, without a network."""
    from hatchling.build import build_sdist, build_wheel

    folder = tmp_path_factory.mktemp("dist")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return zipfile.ZipFile(folder / build_wheel(str(folder))), tarfile.open(folder / build_sdist(str(folder)))


def package_files() -> set[str]:
    """Everything under src/vitral that is not made by running it."""
    return {
        path.relative_to(SOURCE).as_posix() for path in (SOURCE / "vitral").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_is_the_package_and_nothing_else(built: tuple[zipfile.ZipFile, tarfile.TarFile]) -> None:
    wheel, _ = built
    names = set(wheel.namelist())
    about = {name for name in names if name.startswith(f"vitral-{__version__}.dist-info/")}
    assert names - about == package_files()
    assert {name.rpartition("/")[2] for name in about} == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "LICENSE"}
    kinds = {Path(name).suffix for name in names - about}
    assert kinds == {".py", ".typed", ".json", ".html", ".css", ".js", ".jpg"}  # another kind would be a decision
    for needed in ("py.typed", "report/templates/page.html", "web/static/index.html", "kernels/gelu_triton.py", "cli/words.json"):
        assert f"vitral/{needed}" in names
    assert sum(entry.compress_size for entry in wheel.infolist()) < 2e6


def test_the_wheel_says_what_it_needs(built: tuple[zipfile.ZipFile, tarfile.TarFile]) -> None:
    wheel, _ = built
    read = Parser().parsestr(wheel.read(f"vitral-{__version__}.dist-info/METADATA").decode())
    assert (read["Name"], read["Version"], read["License-Expression"]) == ("vitral", __version__, "Apache-2.0")
    assert read["Requires-Python"] == PROJECT["requires-python"]
    assert set(read.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    always = [need for need in read.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert len(always) == len(PROJECT["dependencies"])
    assert wheel.read(f"vitral-{__version__}.dist-info/entry_points.txt").decode() == "[console_scripts]\nvitral = vitral.cli:main\n"


def test_the_source_archive_makes_the_same_wheel(built: tuple[zipfile.ZipFile, tarfile.TarFile]) -> None:
    _, archive = built
    names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    beside = {"README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "CITATION.cff", "pyproject.toml", ".gitignore", "PKG-INFO"}
    assert names == {f"src/{name}" for name in package_files()} | beside
    assert sum(member.size for member in archive.getmembers()) < 5e6


@pytest.mark.slow
def test_the_wheel_works_without_its_repository(built: tuple[zipfile.ZipFile, tarfile.TarFile], tmp_path: Path) -> None:
    """Templates, static files and tables come from the wheel: trained, reported and exported far from any checkout."""
    wheel, _ = built
    wheel.extractall(tmp_path / "site")

    def vitral(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, "-m", "vitral", *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert vitral("--version") == f"vitral {__version__}\n"
    assert "_vitral()" in vitral("completion", "zsh")
    vitral("train", "digits", "--epochs", "0.02", "--device", "cpu", "--quiet", "--out", "run")
    vitral("report", "run")
    Image.new("L", (8, 8)).save(tmp_path / "one.png")
    vitral("explore", "run", "one.png", "--export", "page.html")
    assert "<!doctype html>" in (tmp_path / "run/report.html").read_text(encoding="utf-8").lower()
    assert (tmp_path / "page.html").stat().st_size > 100_000


def test_every_dependency_has_both_ends_and_a_version_that_was_tested() -> None:
    tested = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    groups = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    for need in {need for group, needs in groups.items() if group != "all" for need in needs}:
        name = re.split(r"[\[<>=]", need)[0]
        assert re.search(r">=[\d.]+,<\d+$", need), f"{need} has no range"
        assert re.sub("_", "-", name) in tested, f"{name} is not in constraints.txt"


def test_the_citation_is_of_its_format() -> None:
    read: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert set(read) >= REQUIRED and set(read) <= ALLOWED
    assert read["cff-version"] == "1.2.0" and read["type"] == "software" and read["license"] == PROJECT["license"]
    assert [*read["authors"]] == [{"name": author["name"]} for author in PROJECT["authors"]]
    assert read["version"] == __version__ and set(read["keywords"]) <= {*PROJECT["keywords"]}


def test_the_changelog_begins_with_this_version() -> None:
    titles = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert titles[0] == __version__ and titles == sorted(titles, reverse=True)


def test_the_templates_of_the_repository_lead_somewhere() -> None:
    templates = [*(ROOT / ".github").rglob("*.md")]
    assert len(templates) >= 4
    for template in templates:
        text = template.read_text(encoding="utf-8")
        assert all((template.parent / link).resolve().is_file() for link in re.findall(r"\]\(([^)]+)\)", text)), template
        if template.parent.name == "ISSUE_TEMPLATE":
            assert {"name", "about"} == set(yaml.safe_load(text.split("---")[1]))


def test_the_extra_that_an_error_names_brings_the_library() -> None:
    told = {extra: {library for library, named in EXTRAS.items() if named == extra} for extra in EXTRAS.values()}
    extras = PROJECT["optional-dependencies"]
    assert told == {
        extra: {re.split(r"[<>=\[]", line)[0] for line in extras[extra]} for extra in extras if extra not in ("docs", "dev", "all")
    }
