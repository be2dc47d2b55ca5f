"""Writes docs/licences.md: what Vitral needs to run, and under which licence each comes, as their own metadata says."""

from __future__ import annotations

import contextlib
import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXTRAS = ("hub", "onnx", "ray", "tensorboard", "web")
"""Those that bring verbs more to do. The others are for the demo, the tests and the documentation."""
PICTURES = """
## Photographs

| photograph | where | author | licence |
|---|---|---|---|
| Chelsea the cat | `src/vitral/report/demo/cat.jpg`, from scikit-image's `chelsea`; in the README's pictures | Stéfan van der Walt | CC0 |
"""


def page() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    rows = [(need, "always") for need in project["dependencies"]]
    rows += [(need, f"extra `{extra}`") for extra in EXTRAS for need in extras[extra]]
    lines = [f"| {name} | {when} | {licence(name)} |" for need, when in rows if (name := re.split(r"[\[<>=!~; ]", need)[0])]
    head = "# Licences\n\nOf the packages that Vitral needs, as their own metadata says. Made by `docs/make_licences.py`.\n\n"
    return head + "| package | needed | licence |\n|---|---|---|\n" + "\n".join(sorted(lines, key=str.lower)) + "\n" + PICTURES


def licence(name: str) -> str:
    """By the metadata of the version that is pinned; where that is not installed, what the page has already."""
    about: Any = None  # an email message, which says more than its type
    pins = "\n".join(file.read_text(encoding="utf-8") for file in ROOT.glob("constraints*.txt"))
    with contextlib.suppress(PackageNotFoundError):
        about = metadata(name)
    if about is None or f"{name.replace('_', '-')}=={about['Version']}" not in pins.splitlines():
        page = (ROOT / "docs/licences.md").read_text(encoding="utf-8")
        stands = re.search(rf"^\| {name} \| .* \| (.*) \|$", page, re.MULTILINE)
        return stands[1] if stands else "not installed here"
    classified = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License ::")]
    stated = (
        (about.get("License-Expression") or "").strip() or ", ".join(classified) or (about.get("License") or "").strip().splitlines()[0]
    )
    return stated.replace("|", "/")[:80].strip()


if __name__ == "__main__":
    (ROOT / "docs/licences.md").write_text(page(), encoding="utf-8")
