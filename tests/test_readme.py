"""What README.md and docs/ promise: commands run or at least parse, Python blocks run, links and paths exist, the tree is the tree."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import runpy
import shlex
import shutil
import warnings
from pathlib import Path

import matplotlib
import pytest
from PIL import Image
from tests.blocks import steps
from tests.commands import parse_line
from tests.scripts import load_script

import vitral
from vitral.cli import VERBS, main
from vitral.report.demo.photograph import PHOTOGRAPH

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = [page for page in PAGES if page.parent.name in ("guide", "concepts", "how-to", "lesson")]
RESULTS = [*(page for page in PAGES if page.parent.name == "results"), ROOT / "docs/LOG.md"]
PHONE = 368
"""Pixels that a phone of 400 leaves a picture."""
SMALLEST = 9
"""Pixels of its labels there."""
EXPENSIVE = ("demo", "train", "pretrain", "plan", "compare", "scale", "explore", "figures", "audit", "film", "bench", "quantise")
"""Verbs of the README that take longer than a test may, need data from elsewhere, wait for a browser, or were run by the demo already:
their arguments are parsed."""


def commands(page: Path) -> list[tuple[str, str]]:
    """(command line, next line) for all that a page shows in fenced or indented blocks."""
    return [(step.command, step.after) for step in steps(page) if re.match(r"(?:torchrun .* -m )?vitral ", step.text)]


PLACEHOLDERS = {"S": "0", "B": "samples=50000", "P": "1", "vit_tiny_patch16_224.safetensors": "vit_tiny.safetensors"}


def measured(page: Path) -> list[tuple[str, str]]:
    """The same for a page of results, whose commands stand in the text with letters for what changes; names of verbs alone are left out."""
    found = re.findall(r"`(vitral [a-z]+ [^`…]+)`|^(?: {4,})?(vitral [a-z]+ .*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    single = (line for inline, fenced in found for line in (inline or fenced).split("; "))
    lines = (" ".join(PLACEHOLDERS.get(word, re.sub("=S$", "=0", word)) for word in line.split()) for line in single)
    return [(line, "") for line in dict.fromkeys(lines)]


COMMANDS = [(page, line, after) for page in (README, *GUIDES) for line, after in commands(page)]
COMMANDS += [(page, line, after) for page in RESULTS for line, after in measured(page)]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new user's folder after `vitral demo`: runs/demo, with weights and photographs beside it."""
    folder = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("vitral.draw.provenance.DPI", 40)
        vitral.export(vitral.create("ti/16"), "timm", format="timm").rename("vit_tiny.safetensors")
        vitral.save(vitral.load("vit_tiny.safetensors"), "vit_tiny")  # what the README's line that needs the network leaves
        with contextlib.redirect_stdout(io.StringIO()) as told:
            assert main(["demo", "--epochs", "1"]) == 0  # finds the weights in the folder
        (folder / "told.txt").write_text(told.getvalue(), encoding="utf-8")
    shutil.copytree(folder / "runs/demo", folder / "runs/long")  # what the guide goes on with
    for name in ("cats", "dogs"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(8):
            Image.linear_gradient("L").rotate(20 * number).convert("RGB").save(folder / "photos" / name / f"{number}.png")
    return folder


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    monkeypatch.setattr("vitral.draw.provenance.DPI", 40)
    return place


def test_the_demo_leaves_what_it_says(here: Path) -> None:
    left = {"report.html", "explore.html", "digit.png", "cat.jpg", "model.safetensors", "metrics.jsonl"}
    assert left <= {path.name for path in (here / "runs/demo").iterdir()}
    assert {"class-token-attention.png", "cat.png"} <= {path.name for path in (here / "runs/demo/figures").iterdir()}
    assert "A photograph in" in (here / "runs/demo/report.html").read_text(encoding="utf-8")
    assert vitral.load("runs/demo").config.class_token  # the README shows where it looks


def test_the_demo_says_what_it_made_and_what_comes_next(here: Path) -> None:
    told = (here / "told.txt").read_text(encoding="utf-8")
    made = re.findall(r"^\w+ +(runs/demo/\S+)", told, re.MULTILINE)
    assert made == ["runs/demo/report.html", "runs/demo/explore.html", "runs/demo/figures/cat.png"]
    assert all((here / path).is_file() for path in made)
    commands = re.findall(r"  (vitral .*)$", told, re.MULTILINE)
    assert len(commands) == 4 and "vitral explore vit_tiny.safetensors runs/demo/cat.jpg" in commands
    for line in commands:
        _, verb, *arguments = shlex.split(line)
        parse_line(verb, arguments)


def test_readme_python_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks(README)
    exec(compile(block, "README.md", "exec"), {})
    with Image.open(here / "where.png") as where:
        assert min(where.size) >= 8
    assert "0." in capsys.readouterr().out


@pytest.mark.parametrize(
    "page", [page for page in GUIDES if page.parent.name in ("guide", "concepts") and blocks(page)], ids=lambda page: page.name
)  # recipes, whose blocks need what their commands leave, are run by test_pages.py
def test_guide_python_runs(page: Path, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib.use("Agg")
    for name in ("runs", "vit_tiny.safetensors", "photos"):
        (tmp_path / name).symlink_to(here / name)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page):
        exec(compile(block.replace("runs/from-python", "from-python"), page.name, "exec"), names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "start"),
    [
        (1, "import timm\nfrom PIL import Image\nfrom timm.utils import AttentionExtract"),
        (2, "import torch\nfrom PIL import Image\nfrom transformers import AutoImageProcessor, ViTForImageClassification"),
        (3, "import vitral\nfrom PIL import Image\nfrom torchvision.datasets import ImageFolder"),
    ],
    ids=["timm", "transformers", "vitral"],
)
def test_the_ten_tasks_run(column: int, start: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs/guide/coming-from.md"
    rows = [line.split(" | ") for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| **")]
    assert len(rows) == 10
    lines = [line for row in rows for line in re.findall(r"`([^`]+)`", row[column]) if not line.endswith((".py", "Trainer"))]
    assert len(lines) >= 10
    for name in ("vit_tiny.safetensors", "photos"):
        (tmp_path / name).symlink_to(here / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    vitral.export(vitral.load("vit_tiny.safetensors"), "vit-tiny-hf", format="hf")
    Image.linear_gradient("L").convert("RGB").save("cat.jpg")
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the libraries warn of is their affair
        exec(start, names)
        for line in lines:
            exec(compile(line, f"{page.name}: {line}", "exec"), names)


def test_every_line_of_the_look_guide_runs(here: Path) -> None:
    page = ROOT / "docs/guide/look.md"
    lines = re.findall(r"^    (look\.\w+\(.*\))$", page.read_text(encoding="utf-8"), re.MULTILINE)
    lines += [f"look.{call}" for call in re.findall(r"^\| `(\w+\((?:tape|model).*?\))` \|", page.read_text(encoding="utf-8"), re.MULTILINE)]
    shown = {line.partition("(")[0].removeprefix("look.") for line in lines}
    assert shown <= {*vitral.look.METHODS, *vitral.look.MEASURES} and len(shown) > 20, "a method that is new may still be missing"
    model = vitral.load("runs/demo")
    names = {"look": vitral.look, "model": model, "tape": vitral.watch(model, "runs/demo/digit.png")}
    for line in lines:
        assert eval(line, names) is not None


@pytest.mark.parametrize(
    "line", [step.command for step in steps(README) if step.kind == "shell" and step.runs and step.text.split()[1] not in EXPENSIVE]
)
def test_readme_command_runs(line: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are run, hurried, by test_pages.py."""
    for name in ("runs", "vit_tiny"):
        (tmp_path / name).symlink_to(here / name)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)[1:]) == 0


@pytest.mark.parametrize(("page", "line", "after"), COMMANDS, ids=lambda value: value.name if isinstance(value, Path) else None)
def test_every_command_parses(page: Path, line: str, after: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, verb, *arguments = shlex.split(line.partition(" -m ")[2] or line)
    assert verb in VERBS
    if after.startswith("vitral: "):  # a mistake, shown with its answer
        assert main([verb, *arguments]) == 2
        assert capsys.readouterr().err.strip() == after
    else:
        parse_line(verb, arguments)


def test_the_lists_of_commands_are_not_empty() -> None:
    assert len([line for page, line, _ in COMMANDS if page == README]) >= 10
    assert all(commands(page) for page in GUIDES if page.parent.name == "guide" and page.name != "others.md")
    assert all(len(measured(page)) >= 3 for page in RESULTS if page.name not in ("queue.md", "README.md", "speed.md"))  # to be run, and how


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text):
        if target.startswith(("http://", "https://")):
            continue
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{page.name} links to {target}"
        if anchor and there.suffix == ".md":
            assert anchor in slugs(there), f"{page.name} links to {target}#{anchor}"
    for path in re.findall(r"`((?:src|docs|examples|tests|benchmarks)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), f"{page.name} speaks of {path}"


def test_every_picture_of_the_readme_is_what_a_command_wrote() -> None:
    text = README.read_text(encoding="utf-8")
    shown = dict.fromkeys(re.findall(r"docs/images/readme/([\w-]+?)(?:-dark)?\.webp", text))
    films = json.loads((ROOT / "docs/images/readme/pictures.json").read_text(encoding="utf-8"))
    made = json.loads((ROOT / "docs/images/readme/provenance.json").read_text(encoding="utf-8"))
    assert set(shown) == {*films, *made}
    for name in films:
        assert len((ROOT / f"docs/images/readme/{name}.webp").read_bytes()) == films[name]["bytes"], "run docs/make_readme_pictures.py"
    lines = {line for _, line, _ in COMMANDS} | {step.command for step in steps(README)}
    for name, about in {**films, **made}.items():
        assert set(about["command"].splitlines()) <= lines, f"{name} is of a command that the README does not name"
    assert all(len(alternative) > 40 for alternative in re.findall(r'alt="(.*?)"', text)) and text.count('alt="') == len(shown)
    assert PHOTOGRAPH.read_bytes() == (ROOT / "docs/images/photos/cat.jpg").read_bytes()  # the gallery shows the same


def test_labels_in_pictures_of_the_readme_are_readable_on_a_phone() -> None:
    made = json.loads((ROOT / "docs/images/readme/provenance.json").read_text(encoding="utf-8"))
    widths = dict(re.findall(r'docs/images/readme/([\w-]+)\.webp" width="(\d+)"', README.read_text(encoding="utf-8")))
    for name, about in made.items():
        shown = min(int(widths[name]), PHONE)
        assert about["label"] * shown / about["size"][0] >= SMALLEST, (
            f"{name}: labels of {about['label'] * shown / about['size'][0]:.1f} px"
        )


PROGRAMS = ("vitral", "make", "pip", "uv", "git")
"""What a block of the README may call."""


def shell_blocks(text: str) -> list[str]:
    return re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def pastes(line: str) -> bool:
    """Whether a shell takes it as it is: a program, its arguments, and what is said of it behind #."""
    command = line.partition("#")[0].rstrip()
    return shlex.split(command)[0] in PROGRAMS and not re.search(r"\S {2,}\S|[<>|;…]", command)


def test_every_block_of_the_readme_can_be_pasted_as_it_is() -> None:
    found = shell_blocks(README.read_text(encoding="utf-8"))
    assert len(found) >= 6
    assert [line for line in "".join(found).splitlines() if not pastes(line)] == []


@pytest.mark.parametrize(
    "line", ["vitral look runs/demo --worst 12   its most confident errors", "vitral look RUN …", "look runs/demo", "$ make demo"]
)
def test_what_cannot_be_pasted_is_found(line: str) -> None:
    assert not pastes(line)


LONGEST = 25
"""Words of a sentence."""


def sentences(text: str) -> list[str]:
    """What a reader reads: paragraphs, cells, captions and alternative texts, without code."""
    text = re.sub(r"^```.*?^```|<!--.*?-->", "\n\n", text, flags=re.MULTILINE | re.DOTALL)
    pieces = [part for _, part in re.findall(r'(alt=)"(.*?)"', text)]
    text = re.sub(r"<[^>]+>", " ", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for block in re.split(r"\n\s*\n|\n- ", text):
        lines = block.strip().splitlines()
        pieces += [cell for line in lines for cell in line.split("|")] if block.strip().startswith("|") else [" ".join(lines)]
    return [one.strip() for piece in pieces for one in re.split(r"(?<=[.?!])\*{0,2}\s+(?=[\W\d]*[A-ZÄÖÜ¹²])", piece) if one.strip()]


def test_the_readme_is_plain_english() -> None:
    found = sentences(README.read_text(encoding="utf-8"))
    assert len(found) > 50
    long = [one for one in found if len(one.split()) > LONGEST]
    assert not long, long
    assert not [one for one in found if ";" in one], "no semicolons"
    assert not [one for one in found if one.count(": ") > 1], "one colon a sentence"


def test_long_sentences_are_found() -> None:
    assert [len(one.split()) for one in sentences("One two. " + "Word and " * 13 + "word.\n\n| a cell | b |")] == [2, 27, 2, 1]


def test_the_table_of_the_readme_is_part_of_the_whole_one() -> None:
    def cells(page: Path) -> list[list[str]]:
        lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
        lines = lines[next(number for number, line in enumerate(lines) if line.startswith("| what you want")) :]
        plain = [re.sub(r"\[(.*?)\]\(.*?\)|[*⁰¹²³⁴-⁹]", r"\1", line) for line in lines]
        return [[cell.strip() for cell in line.strip("| ").split("|")] for line in plain]

    (head, *short), (whole_head, *whole) = cells(README), cells(ROOT / "docs/guide/others.md")
    short = short[:6]
    assert head[0] == "what you want" and len(head) == 4 and len(whole_head) == 10 and len(whole) == 15
    of = [whole_head.index(name) for name in head]
    assert [row for row in ([row[place] for place in of] for row in whole) if row in short] == sorted(
        short, key=lambda row: [one[0] for one in whole].index(row[0])
    )


def test_the_picture_of_the_parts_is_what_the_imports_say() -> None:
    script = runpy.run_path(str(ROOT / "docs/make_architecture.py"))
    assert script["PICTURE"].read_text(encoding="utf-8") == script["picture"](), "run python docs/make_architecture.py"


def test_every_hop_of_the_two_flows_exists() -> None:
    text = (ROOT / "docs/concepts/architecture.md").read_text(encoding="utf-8")
    parts = "|".join(sorted(path.stem for path in (ROOT / "src/vitral").iterdir() if not path.name.startswith(("_", "."))))
    names = set(re.findall(rf"`((?:{parts})(?:\.\w+)+)`", text)) - {"config.json", "model.safetensors"}
    assert len(names) >= 40
    for name in names:
        module, _, thing = name.rpartition(".")
        try:
            importlib.import_module(f"vitral.{name}")
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(f"vitral.{module}"), thing), name


def slugs(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_verb_that_is_mentioned_exists(page: Path) -> None:
    mentioned = set(re.findall(r"`(?:\.venv/bin/)?vitral ([a-z]+)", page.read_text(encoding="utf-8")))
    assert mentioned <= {*VERBS}, page


def test_the_tree_in_contributing_is_the_tree() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = text[text.index("src/vitral/\n") :].partition("```")[0]
    inside = re.findall(r"^  (\S+)", tree, re.MULTILINE)
    real = [path for path in (ROOT / "src/vitral").iterdir() if not path.name.startswith(("_", "."))]
    assert {name.rstrip("/") for name in inside if name.endswith("/")} == {path.name for path in real if path.is_dir()}
    assert {name for name in inside if name.endswith(".py")} == {path.name for path in real if path.suffix == ".py"}
    for name in re.findall(r"^(\w+)/", tree, re.MULTILINE):
        assert (ROOT / name).is_dir()


def test_the_navigation_names_every_page() -> None:
    named = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = (ROOT / "docs").rglob("*.md")
    assert named == {str(path.relative_to(ROOT / "docs")) for path in pages}


def test_the_list_of_licences_is_current() -> None:
    module = load_script(ROOT / "docs/make_licences.py")
    assert (ROOT / "docs/licences.md").read_text(encoding="utf-8") == module.page(), "run docs/make_licences.py"


def test_every_promise_names_a_test_that_there_is() -> None:
    page = (ROOT / "docs/concepts/trust.md").read_text(encoding="utf-8")
    promised = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## What is promised")[2].partition("## ")[0]
    lines = page.partition("## The lines of SECURITY.md")[2].partition("\n## ")[0]
    promises = [bold.rstrip(":") for bold in re.findall(r"^- \*\*(.+?)\*\*", promised, re.MULTILINE)]
    assert promises == re.findall(r"^\| (.+?) \| `", lines, re.MULTILINE) and len(promises) > 5
    for file, name in re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)(?:::(\w+))?`", page):
        assert (ROOT / file).is_file() and (not name or f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")), (file, name)
