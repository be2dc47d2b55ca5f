"""What is released: the wheel and the source archive hold what they must and nothing else, and what is written beside them is so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version
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
    assert kinds == {".py", ".typed", ".html", ".css", ".js", ".jpg"}  # another kind would be a decision
    for needed in ("py.typed", "report/templates/page.html", "web/static/index.html", "kernels/gelu.py"):
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


def pins() -> dict[str, str]:
    """Package → the version that was tested; a package in two files would have two."""
    pinned: dict[str, str] = {}
    for file in sorted(ROOT.glob("constraints*.txt")):
        for line in file.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                name, version = re.fullmatch(r"([a-z0-9.-]+)==([0-9][0-9a-z.]*)", line).groups()  # type: ignore[union-attr]
                assert name not in pinned, f"{name} is in {file.name} and in a file before it"
                pinned[name] = version
    return pinned


def test_every_dependency_has_both_ends_and_a_version_that_was_tested() -> None:
    tested = pins()
    groups = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    for need in {need for needs in groups.values() for need in needs if not need.startswith("vitral[")}:
        name = re.split(r"[\[<>=]", need)[0]
        bounds = re.search(r">=([\d.]+),<(\d+)$", need)
        assert bounds, f"{need} has no range"
        low, high, version = (Version(text) for text in (*bounds.groups(), tested[re.sub("_", "-", name)]))
        assert low <= version < high, f"{need} was tested with {version}"
        assert high.major == version.major + 1, f"{need} allows a major version that nobody tried"


def test_one_library_has_one_range() -> None:
    """The demo asks for libraries that an extra asks for as well."""
    ranges: dict[str, set[str]] = {}
    for need in [*PROJECT["dependencies"], *(need for needs in PROJECT["optional-dependencies"].values() for need in needs)]:
        ranges.setdefault(re.split(r"[\[<>=]", need)[0], set()).add(need)
    assert [found for name, found in ranges.items() if name != "vitral" and len(found) > 1] == []


def test_no_pin_needs_more_than_the_oldest_python() -> None:
    """Of what is installed here; `make check-platforms` asks the index for all of them."""
    asked = 0
    for name, version in pins().items():
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        if installed.version == version:
            asked += 1
            needs = ",".join(installed.metadata.get_all("Requires-Python") or [])
            assert "3.11.0" in SpecifierSet(needs), f"{name} {version} needs Python {needs}"
    if not asked:
        pytest.skip("nothing here has the version of its pin")


def test_every_target_of_make_installs_extras_that_are_there() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    sets = {name: extras.split(",") for name, extras in re.findall(r"^\$\(HAS\)(\S+): EXTRAS := (\S+)$", text, re.MULTILINE)}
    assert {"demo", "test", "all"} <= set(sets)
    assert {extra for extras in sets.values() for extra in extras} <= set(PROJECT["optional-dependencies"])


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("lacks", "line"),
    [
        ("ensurepip", r"\S+ lacks ensurepip, so it cannot make an environment: sudo apt install python\S*-venv\n"),
        ("sys.version_info", r"Vitral needs Python 3.11 or newer, \S+ is older: make BASE_PYTHON=python3.12 demo\n"),
    ],
)
def test_what_keeps_an_environment_from_being_made_is_one_line(tmp_path: Path, lacks: str, line: str) -> None:
    """As on Debian without python3-venv, and as with the Python of an old system."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    if lacks == "ensurepip":
        (tmp_path / "ensurepip.py").write_text("raise ModuleNotFoundError\n", encoding="utf-8")
    else:
        (tmp_path / "sitecustomize.py").write_text("import sys; sys.version_info = (3, 9)\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    # the interpreter itself: an environment's imports the modules of its own start first
    command = ["make", "--no-print-directory", "demo", f"BASE_PYTHON={Path(sys.executable).resolve()}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    told = [text for text in done.stderr.splitlines(keepends=True) if not text.startswith("make")]
    assert done.returncode == 2 and len(told) == 1 and re.fullmatch(line, told[0]), done.stderr
    assert not (tmp_path / ".venv").exists()


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
        extra: {re.split(r"[<>=\[]", line)[0] for line in extras[extra]} for extra in ("web", "hub", "onnx", "ray", "tensorboard")
    }
