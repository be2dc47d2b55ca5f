"""How to install, as the README shows it: from an address where pyproject.toml names one, from a checkout until then."""

from __future__ import annotations

import tomllib
from typing import Any

from evidence import MEASURED, ROOT

from vitral.base.files import read_json

PROJECT = ROOT / "pyproject.toml"
ADDRESS = "Source"
"""The name in [project.urls]. Its line goes in with the first release: it turns on `git clone` and `pip install vitral`."""
SIZES = MEASURED / "sizes.json"
"""Way → MiB on the disk."""


def install_lines(project: dict[str, Any] | None = None) -> str:
    """Three ways to the demo, a block each."""
    about = (project or tomllib.loads(PROJECT.read_text(encoding="utf-8")))["project"]
    address = about.get("urls", {}).get(ADDRESS)
    name = about["name"] if address else "."
    sizes = {way: f"{entry['MiB'] / 1024:.1f} GiB" for way, entry in read_json(SIZES).items() if way != "how"}
    clone = [f"git clone {address} {about['name']} && cd {about['name']}"] * bool(address)
    where = "With make" if address else "In a checkout, with make"
    ways = {
        f"You need Python 3.11 or newer. {where} ({sizes['demo']} on the disk):": [*clone, "make demo"],
        f"In an environment, with pip ({sizes['pip']}, nearly all of it PyTorch with CUDA):": [f"pip install {name}", "vitral demo"],
        f"The same with uv and PyTorch's small build for CPUs (about {sizes['cpu']}, untried here):": [
            f"uv pip install {name} --torch-backend cpu",
            "vitral demo",
        ],
    }
    return "\n\n".join("\n".join([text, "", "```", *lines, "```"]) for text, lines in ways.items())
