"""Writes the lesson's notebook and its page from docs/lesson/vit_from_nothing.py: `python docs/make_lesson.py`.

The notebook has no outputs; the page has those of one run, pictures in docs/images/lesson. For the part with the photograph, name
ViT-Ti's file in VITRAL_LESSON_WEIGHTS. After a change of words, or of a file of the model that is shown, `--keep` trains nothing: it keeps
the outputs of all code that is as it was.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import resource
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
SOURCE = DOCS / "lesson/vit_from_nothing.py"
NOTEBOOK = SOURCE.with_suffix(".ipynb")
PAGE = SOURCE.with_suffix(".md")
PICTURES = DOCS / "images/lesson"
COLOURS = 128
"""Of a picture on the page: charts and small overlays lose nothing that is seen, and files are a third."""
BEGIN, END = "<!-- output -->", "<!-- end of output -->"
HEADER = re.compile(r"# %%(?P<title>[^\[\n]*?)(?: *\[(?P<kind>markdown)\])?(?: *tags=(?P<tags>\[.*\]))?$")


@dataclass(frozen=True)
class ImageSet:
    """One cell: text, or code with what its picture shows as its title."""

    text: str
    markdown: bool = False
    title: str = ""
    tags: tuple[str, ...] = ()
    """settings: numbers that a quick test makes small; claim: holds after the whole training alone; answer: folded."""

    @property
    def shows_source(self) -> bool:
        return "\nshow_source(" in f"\n{self.text}"


@dataclass
class Output:
    text: str = ""
    picture: bytes | None = field(default=None, repr=False)


def parts(text: str) -> list[ImageSet]:
    """The cells of a script in the percent format (Jupytext, VS Code, Spyder)."""
    found: list[tuple[re.Match[str], list[str]]] = []
    for line in text.splitlines():
        if header := HEADER.match(line):
            found.append((header, []))
        elif found:
            found[-1][1].append(line)
    made = []
    for header, lines in found:
        markdown = header["kind"] == "markdown"
        body = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines) if markdown else "\n".join(lines)
        made.append(ImageSet(body.strip("\n"), markdown, header["title"].strip(), tuple(json.loads(header["tags"] or "[]"))))
    return made


def notebook(cells: Sequence[ImageSet]) -> str:
    """As Jupyter reads it: no outputs; answers are folded."""
    made = []
    for number, part in enumerate(cells, 1):
        cell: dict[str, Any] = {"cell_type": "markdown" if part.markdown else "code", "id": f"cell-{number:02d}", "metadata": {}}
        if part.tags:
            cell["metadata"]["tags"] = list(part.tags)
        if "answer" in part.tags:
            cell["metadata"]["jupyter"] = {"source_hidden": True}
        if not part.markdown:
            cell |= {"execution_count": None, "outputs": []}
        made.append({**cell, "source": part.text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def run(cells: Sequence[ImageSet], changes: Mapping[str, Any] | None = None, without: Sequence[str] = ()) -> Iterator[Output | None]:
    """What each cell prints and shows, as a notebook would; `changes` replace settings, cells with a tag of `without` are left out."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for part in cells:
        if part.markdown or set(part.tags) & set(without):
            yield None
            continue
        yield execute(part, names)
        if "settings" in part.tags and changes:
            if unknown := set(changes) - set(names):
                raise KeyError(f"the lesson has no setting {', '.join(unknown)}")
            names |= changes


def execute(part: ImageSet, names: dict[str, Any]) -> Output:
    """Run one cell; the value of its last line is shown."""
    tree = ast.parse(part.text)
    shown = tree.body[-1] if tree.body else None
    last = ast.Expression(shown.value) if isinstance(shown, ast.Expr) else None
    if last is not None:
        tree.body.pop()
    where = f"{SOURCE.name}: {part.title or part.text.partition(chr(10))[0]}"
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(tree, where, "exec"), names)
        value: Any = eval(compile(last, where, "eval"), names) if last is not None else None
    output = Output(said.getvalue())
    if hasattr(value, "_repr_png_"):
        output.picture = value._repr_png_()
    elif value is not None:
        output.text += repr(value)
    return output


def page(cells: Sequence[ImageSet], outputs: Sequence[str] | None = None) -> str:
    """Text, code and (where given) outputs as Markdown; without outputs it is what the page must be apart from them."""
    pieces = ["<!-- Written by docs/make_lesson.py from docs/lesson/vit_from_nothing.py: change it there. -->"]
    for part, output in zip(cells, outputs or [""] * len(cells), strict=True):
        if part.markdown:
            pieces.append(part.text)
            continue
        piece = [fenced(part.text), *([output] if output else [])]
        pieces += ['<details markdown="1">\n<summary>Answer</summary>', *piece, "</details>"] if "answer" in part.tags else piece
    return "\n\n".join(pieces) + "\n"


def shown(part: ImageSet, output: Output | None) -> str:
    """An output as Markdown; nothing where there is none."""
    if output is None or not (output.text.strip() or output.picture):
        return ""
    text = [fenced(output.text.strip("\n"), "python" if part.shows_source else "text")] if output.text.strip() else []
    picture = [f"![{part.title}](../images/lesson/{slug(part.title)}.png)"] if output.picture else []
    return "\n\n".join([BEGIN, *text, *picture, END])


def kept(cells: Sequence[ImageSet], text: str) -> list[str]:
    """The outputs that a page has for the same code; what shows sources is run again."""
    outputs: list[str] = []
    names: dict[str, Any] = {}
    for number, part in enumerate(cells):
        if part.markdown:
            outputs.append("")
            continue
        if part.shows_source or not names:
            outputs.append(shown(part, execute(part, names)))
            continue
        found = re.search(rf"{re.escape(fenced(part.text))}\n\n({re.escape(BEGIN)}.*?{re.escape(END)})?", text, re.DOTALL)
        if not found:
            sys.exit(f"cell {number + 1} ({part.title or part.text.partition(chr(10))[0]}) is new: run python docs/make_lesson.py")
        outputs.append(found[1] or "")
    return outputs


def fenced(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


def without_outputs(text: str) -> str:
    return re.sub(rf"{re.escape(BEGIN)}\n\n.*?{re.escape(END)}\n\n?", "", text, flags=re.DOTALL)


def slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def smaller(png: bytes) -> bytes:
    """The same picture with few colours."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as opened:
        reduced = opened.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    reduced.save(buffer := io.BytesIO(), "PNG", optimize=True)
    return buffer.getvalue()


def main() -> None:
    cells = parts(SOURCE.read_text(encoding="utf-8"))
    NOTEBOOK.write_text(notebook(cells), encoding="utf-8")
    if "--keep" in sys.argv[1:]:
        PAGE.write_text(page(cells, kept(cells, PAGE.read_text(encoding="utf-8"))), encoding="utf-8")
        return
    weights = os.environ.get("VITRAL_LESSON_WEIGHTS")
    if weights:
        os.environ["VITRAL_LESSON_WEIGHTS"] = str(Path(weights).resolve())
    outputs: list[Output | None] = []
    spent = seconds()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        for part, output in zip(cells, run(cells), strict=True):
            outputs.append(output)
            if output is not None:
                now = seconds()
                print(f"{now - spent:6.1f} s  {part.title or part.text.partition(chr(10))[0]}", file=sys.stderr, flush=True)
                spent = now
    print(f"{seconds():6.1f} s of CPU in all", file=sys.stderr)
    for old in PICTURES.glob("*.png"):
        old.unlink()
    PICTURES.mkdir(parents=True, exist_ok=True)
    for part, output in zip(cells, outputs, strict=True):
        if output is not None and output.picture:
            (PICTURES / f"{slug(part.title)}.png").write_bytes(smaller(output.picture))
    PAGE.write_text(page(cells, [shown(part, output) for part, output in zip(cells, outputs, strict=True)]), encoding="utf-8")


def seconds() -> float:
    """CPU seconds of this process and its children: on a shared machine the clock says little."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
