"""For `make docs`: what lies in results/ and a page links is part of the site, where that page finds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

RESULTS = Path(__file__).parents[1] / "results"


def on_files(files: Files, config: Any) -> Files:
    for path in sorted((*RESULTS.rglob("*.json"), *RESULTS.rglob("*.zip"))):
        files.append(File.generated(config, f"results/{path.relative_to(RESULTS).as_posix()}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A link of a page in docs/FOLDER as the site has it, which starts at docs."""
    return markdown.replace("](../../results/", "](../results/")
