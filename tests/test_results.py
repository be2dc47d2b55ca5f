"""What docs/results publishes: made from the records in results/, and nothing stated that has none.

The guide and the concepts state accuracies too: each is in a source that its section links, or is what a command prints.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.scripts import load_script

from vitral.base.errors import DataError
from vitral.base.files import read_json
from vitral.cli import main
from vitral.config import DataConfig
from vitral.presets import run as run_preset
from vitral.run.archive import opened
from vitral.run.differences import differences
from vitral.run.folder import RunFolder
from vitral.run.journal import read_metrics
from vitral.study.fight.compare import compare
from vitral.train.fit import fit

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results/records"
STATED = re.compile(r"(?<![\w.,-])(?:\d{2}|100)\.\d+(?![\w.,]*\d)(?: ?%)?|(?<![\w.,-])\d{2,3} ?(?:%|per cent)")
"""An accuracy: 96.91, 97.1 %, 94 %, 100.00%."""
NO_ACCURACY = re.compile(r"\(10 %\)|95 % interval")
"""A share of the pictures, the level of an interval."""
CITED = {"name", "source", "note", "header", "rows", "ours"}


def stated(text: str) -> list[str]:
    """The accuracies of a text but for what is made from records; code is read, too."""
    return STATED.findall(NO_ACCURACY.sub("", build.MARKED.sub("", text)))


build, collect = (load_script(ROOT / f"results/{name}.py") for name in ("build", "collect"))
claim_tables, evidence, install_lines, row_tables, speed_tables = (
    sys.modules[name] for name in ("claim_tables", "evidence", "install_lines", "row_tables", "speed_tables")
)


def test_what_is_committed_is_what_the_records_make(capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--check"]) == 0, capsys.readouterr().out
    inputs = build.figure_inputs(evidence.read_records())
    assert inputs and {name: read_json(build.FIGURES / f"{name}.json")["journals"] for name in inputs} == inputs
    assert {path.stem for path in build.FIGURES.glob("*.png")} == set(inputs), "a figure whose record is gone"


def test_every_accuracy_on_a_page_is_made_from_a_record() -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in build.PAGES}
    assert ROOT / "README.md" in pages and len(pages) > 5
    for page, text in pages.items():
        found = set(stated(text))
        assert not found, f"{page.name}: {', '.join(sorted(found))} has no record: the diary is the place for it"
        assert "†" not in text and not re.findall(r"<!-- (?!/?results)", text), f"{page.name} makes an exception"


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return build.make()


@pytest.mark.parametrize(
    "written", ["It has 97.31.", "**97.31** (one seed)", "`97.3` now", "| mine | 97.312 |", "97 % of test", "97 per cent", "100 % there"]
)
def test_a_page_that_states_an_accuracy_without_a_record_is_refused(written: str, made: dict[str, str]) -> None:
    for page in (ROOT / "README.md", ROOT / "docs/results/records.md", ROOT / "docs/results/reports.md"):
        text = page.read_text(encoding="utf-8")
        assert len(stated(f"{text}\n{written}\n")) == len(stated(text)) + 1, page
        table = re.sub(r"(<!-- results:[\w:.-]+ -->\n)", rf"\g<1>\n{written}\n", text, count=1)
        assert build.filled(table, made) != table, "inside the marks a page is what the records make"


def test_what_is_no_accuracy_is_let_pass() -> None:
    assert not stated("torch 2.11, Python 3.12, 2026-11-16, 10,000 pictures, 0.95, 1.75, a 95 % interval")


def test_what_is_written_by_hand_into_the_tables_states_no_accuracy() -> None:
    """Whatever its field is called. `claim` is a report's own word, `asked` and `aim` are no results; {…} comes from a measurement."""
    lists = [part for part in build.toml("rows").values() if isinstance(part, list)]
    entries = [*claim_tables.claims(), *(entry for part in lists for entry in part if isinstance(entry, dict))]
    assert len(entries) > 80
    for entry in entries:
        ours = [value for name, value in entry.items() if name not in ("claim", "asked", "aim") and not isinstance(value, int | float)]
        text = re.sub(r"{[^}]*}", "", "\n".join(map(str, ours)))
        assert not stated(text), f"{stated(text)} of {entry.get('claim') or entry.get('title')} has no record"
    for figure in build.REPORTS:
        assert not stated(f"{figure.title} {claim_tables.entry(figure, '')}"), figure.name


def test_figures_of_others_name_their_source_and_hold_nothing_of_ours() -> None:
    known, records = {row["record"] for row in evidence.rows()}, evidence.read_records()
    page = (ROOT / "docs/results/reports.md").read_text(encoding="utf-8")
    for cited in build.toml("cited")["table"]:
        assert not cited.keys() - CITED and len(cited["source"]) > 5 and f"<!-- results:cited:{cited['name']} -->" in page
        assert not stated(f"{cited['source']} {cited['note']}") and not any("ours" in head.lower() for head in cited["header"])
        for names in cited.get("ours", {}).values():
            assert len(names) == len(cited["rows"]) and set(names) <= known | {""}
        table = row_tables.cited_table(cited, records)
        assert cited["source"] in table and all(row[1] in table for row in cited["rows"])
        without = row_tables.cited_table(cited, {})
        assert all(
            evidence.accuracy(records[name]) not in without for names in cited.get("ours", {}).values() for name in names if name in records
        )


def test_a_row_without_a_record_is_in_no_table(made: dict[str, str]) -> None:
    records = evidence.read_records()
    shown = "".join(made[name] for name in ("readme", "records", "times", "duplicates"))
    assert all((f"| {row['title']} |" in shown) == (row["record"] in records) for row in evidence.rows())
    assert len(row_tables.readme_table({}).splitlines()) == len(row_tables.records_table({}).splitlines()) + 2 == 4, (
        "a head, a rule, and no row"
    )


def test_every_picture_of_the_results_is_shown() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    lying = [path.name for path in (ROOT / "docs/images/results").glob("*.png") if f"images/results/{path.name}" not in pages]
    assert not lying, "pictures that no page shows"


def test_every_claim_of_the_reports_has_a_command_a_verdict_and_what_it_stands_on(made: dict[str, str]) -> None:
    found, records, studies = claim_tables.claims(), evidence.read_records(), evidence.read_studies()
    assert {claim["report"] for claim in found} == {"R0", "R1", "R2", "R3", "R4"} and len(found) > 50
    for claim in found:
        assert claim["where"] and claim["claim"] and claim["command"] and claim["verdict"] in claim_tables.WORDS, claim
        if not claim_tables.is_run(claim, records, studies):
            assert claim["verdict"] in ("open", "cannot"), f"{claim['claim']} is judged, and its record is not there"
            assert claim.keys() & {"record", "minutes", "steps"}, f"{claim['claim']} waits, and nothing says for how long"
        elif claim["verdict"] == "open":
            assert not (claim.get("record") or claim.get("study")), f"{claim['claim']} has its record: judge it"
        if claim["command"] == "–":
            assert claim["verdict"] == "cannot"
    assert all(
        f"results:{name}" in (ROOT / "docs/results/reports.md").read_text(encoding="utf-8") for name in made if name.startswith("claims")
    )
    waiting = [claim for claim in found if claim.get("record") and claim["record"] not in records]
    assert all(f"`{claim['command']}`" in made["queue"] for claim in waiting), "what waits for the GPU stands in the queue"


def test_all_tests_that_are_shown_of_a_study_are_counted_together(made: dict[str, str]) -> None:
    studies = {name: text for name, text in made.items() if name.startswith("study:")}
    told = {name: (len(re.findall(r"\bp [=≤] ", text)), re.findall(r"Holm over (\d+)", text)) for name, text in studies.items()}
    assert len(told) > 5 and all(counted == [str(shown)] for shown, counted in told.values()), told


def test_speed_is_told_as_it_was_measured_and_a_ratio_only_where_the_rounds_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = load_script(ROOT / "benchmarks/peers.py")
    Row = peers.Row
    rows = (
        Row("training step", "compiled", "vitral", 0.05, 100, memory=2**30, share_of_peak=0.5),
        Row("training step", "compiled", "timm", 0.06, 100, 1.2, (1.1, 1.3)),
        Row("training step", "compiled", "torchvision", 0.05, 100, 1.0, (0.9, 1.1)),
        Row("inference of one", "eager", "vitral", 0.004, 1),
        Row("inference of one", "eager", "timm", 0.016, 1, 4.0, (3.9, 4.1)),
        Row("rollout of one", "eager", "vitral", 0.01, 1),
        Row("rollout of one", "eager", "timm", 0.008, 1, 0.8, (0.75, 0.9)),
    )
    machine = {"gpu": "NVIDIA H200", "torch": "2.11.0+cu128", "threads": 8}
    found = peers.Comparison(
        "b/16", machine, "cuda", 12, {"timm": "1.0"}, 1e15, rows, {"class row": (1.05, 1.0, 1.1)}, {"vit-pytorch": "gone"}
    )
    monkeypatch.setattr(speed_tables, "MEASURED", tmp_path)
    assert "Not measured yet" in speed_tables.speed_table("peers")
    (tmp_path / "peers.json").write_text(json.dumps([found.to_dict()]), encoding="utf-8")
    (tmp_path / "peers-eager.json").write_text(json.dumps([found.to_dict()]), encoding="utf-8")
    whole, short = speed_tables.speed_table("peers"), speed_tables.readme_speed_table()
    assert "| b/16 | training step, compiled | 100 | 2,000/s | 1.20 × faster (1.10 to 1.30) | ≈ | 50 % | 1 GiB |" in whole
    assert "| Vitral is, beside timm |" in whole and "| 10 ms | 1.25 × slower (1.11 to 1.33) |" in whole and "one H200, bf16" in whole
    assert "1.05 (1.00 to 1.10)" in whole and "vit-pytorch is absent: gone" in whole
    assert "| GPU: training step, compiled | 2,000/s | 1,667/s | 1.20 × faster (1.10 to 1.30) |" in short
    assert "inference of one" not in short and "| GPU: rollout of one | 10 ms | 8 ms | 1.25 × slower (1.11 to 1.33) |" in short
    assert "inference of one, eager (Vitral replays a recorded pass) | 1 | 4 ms | 4.00 × faster" in whole


def test_the_readme_shows_what_vitral_is_slower_at(made: dict[str, str]) -> None:
    shown = [line for line in made["readme-speed"].splitlines() if line.startswith("| ")][2:]
    assert len(shown) == len(speed_tables.SHORT) and {"faster", "slower", "shown"} <= {word for line in shown for word in line.split()}
    assert "CPU: inference (bf16, timm in fp32)" in made["readme-speed"], "what differs beside the code"
    assert "of one" not in made["readme-speed"].replace("rollout of one", ""), "a replayed pass is shown with its compiled row alone"
    lines = made["speed"].splitlines()
    replayed = [place for place, line in enumerate(lines) if "inference of one, eager (Vitral replays a recorded pass)" in line]
    assert replayed and all("| inference of one, compiled |" in lines[place + 1] and " ≈ " in lines[place + 1] for place in replayed)


@pytest.mark.parametrize("address", [None, "https://example.org/vitral"])
def test_an_address_turns_on_clone_and_install_by_name(address: str | None) -> None:
    urls = {"urls": {install_lines.ADDRESS: address}} if address else {}
    text = install_lines.install_lines({"project": {"name": "vitral", **urls}})
    commands = [line for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    named = [line for line in commands if "git clone" in line or re.search(r"pip install vitral\b", line)]
    assert len(named) == (3 if address else 0) and ("pip install ." in text) == (address is None)
    sizes = [found["MiB"] for way, found in read_json(install_lines.SIZES).items() if way != "how"]
    assert len(sizes) == 3 and all(f"{size / 1024:.1f} GiB" in text for size in sizes)


def test_steps_to_an_accuracy(run: Path, tmp_path: Path) -> None:
    collect.collect(run, tmp_path, "mine")
    (record,) = evidence.read_records(tmp_path)["mine"]
    best = max(line["accuracy"] for line in record.run.metrics if line["split"] == "validation")
    told = claim_tables.steps_to([record], (best / 2, 1.01))
    assert re.search(r"% after [\d,]+, 101 % not reached steps, n = 1", told)


@pytest.mark.parametrize("record", sorted(path.stem for path in RECORDS.iterdir()))
def test_every_record_is_what_was_written_and_tells_nothing_of_the_machine(record: str, capsys: pytest.CaptureFixture[str]) -> None:
    archive = RECORDS / f"{record}.zip"
    assert main(["verify", str(archive)]) == 0, capsys.readouterr().out
    with opened(archive) as folder:
        text = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.json"))
        assert text and not re.search(r'[" ]/(?:home|root|tmp|work|mnt|data|Users)/', text)
        assert archive.stat().st_size < 2**21


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from vitral.presets.runs import run as named

    config = named("digits", epochs=1.0, threads=1, device="cpu", stage="confirm", seed=3)
    return fit(config, out=tmp_path_factory.mktemp("runs") / "run", quiet=True, command="vitral train digits --from /home/me/x.pt").path


def test_one_seed_differs_without_an_interval(run: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        collect.collect(run, tmp_path, name)
    told = evidence.differences(
        evidence.read_records(tmp_path), [{"record": "one", "beside": "other"}, {"record": "one", "beside": "gone"}]
    )
    assert told == {"one": "one − other: 0.00 points"}


def test_a_record_holds_all_but_the_weights_and_can_be_compared_with_its_run(run: Path, tmp_path: Path) -> None:
    archive = collect.collect(run, tmp_path, "mine", alone=True)
    assert archive.name == "mine-3.zip"
    assert archive.read_bytes() == collect.collect(run, tmp_path / "again", "mine", alone=True).read_bytes(), "the same run, the same bytes"
    with opened(archive) as folder:
        path = Path(shutil.copytree(folder, tmp_path / "mine-3"))
    assert collect.collect(path, tmp_path / "again").read_bytes() == archive.read_bytes(), "the folder of a record is packed as it is"
    assert {"asked.json", "config.json", "env.json", "metrics.jsonl.gz", "test.npz", "sealed.npz", "manifest.json"} == {
        file.name for file in path.iterdir()
    }
    record, original = RunFolder.open(path), RunFolder.open(run)
    assert record.finished and record.metrics == original.metrics and record.settled == original.settled
    assert record.asked is not None and record.asked.command == "vitral train digits --from x.pt"
    for split in ("test", "sealed"):
        kept, had = record.answers(split), original.answers(split)
        assert kept.probabilities is not None and had.probabilities is not None
        assert np.array_equal(kept.predictions, had.predictions) and np.array_equal(kept.probabilities, had.probabilities)
    found = differences([run, archive])
    assert not found.differ and found.answers[0]["same"] == 360 and found.weights == [True]
    shown = row_tables.sealed_table(evidence.read_records(tmp_path))
    assert "| mine | 1 |" in shown and "(one seed)" in shown
    (path / "metrics.jsonl.gz").write_bytes(b"\x1f\x8bno")
    with pytest.raises(DataError, match="unpacked"):
        read_metrics(path / "metrics.jsonl.gz")
    with pytest.raises(DataError, match="mine-3"):
        collect.collect(path, tmp_path / "again")
    collect.pack(path, tmp_path / "mine-4.zip")
    with pytest.raises(DataError, match=r"mine-4\.zip: metrics\.jsonl\.gz"):
        evidence.read_records(tmp_path)
    (run / "model.safetensors").rename(run / "gone")  # weights may stay where they were trained: the run's manifest vouches for them
    with opened(collect.collect(run, tmp_path / "again", "mine")) as again:
        assert read_json(again / "manifest.json")["weights"] == read_json(path / "manifest.json")["weights"]
    (run / "manifest.json").rename(run / "no-manifest")
    assert collect.main([str(run), "--out", str(tmp_path / "again")]) == 2
    (run / "no-manifest").rename(run / "manifest.json")
    (run / "gone").rename(run / "model.safetensors")


@pytest.mark.slow
def test_a_study_is_computed_anew_from_its_cells(tmp_path: Path) -> None:
    result = compare(
        "digits", ["vit-small", "cnn"], budget="samples=256", seeds=2, lrs=[3e-3], out=tmp_path / "study", quiet=True, device="cpu"
    )
    collect.collect(tmp_path / "study", tmp_path / "records", "small")
    path = evidence.read_studies(tmp_path / "records")["small"]
    assert {file.name for file in path.iterdir()} >= {"study.json", "result.json", "table.md", "cells", "manifest.json"}
    text = build.study_table(path)
    for row in result.rows:
        low, high = row["interval"]
        assert f"{100 * row['mean']:.2f} ({100 * low:.2f} to {100 * high:.2f})" in text
    assert "Holm over 1" in text and json.loads((path / "result.json").read_text())["data"] == DataConfig().name


@pytest.mark.slow
def test_choices_are_compared_with_the_recipe_on_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = [{"record": name, "title": name, "command": f"vitral train {name}"} for name in ("recipe", "untrained", "later")]
    monkeypatch.setattr(row_tables, "toml", lambda _: {"choice": named})
    assert row_tables.choices_table({}) == "Not run yet: `vitral train recipe`."
    for seed, (name, epochs) in itertools.product((0, 1), (("recipe", 10.0), ("untrained", 0.0))):
        config = run_preset("digits", epochs=epochs, stage="choose", seed=seed, threads=1, device="cpu")
        collect.collect(fit(config, out=tmp_path / f"{name}-{seed}", quiet=True).path, tmp_path / "records", name)
    records = evidence.read_records(tmp_path / "records")
    assert records and not any((one.path / "test.npz").exists() for own in records.values() for one in own)
    lines = row_tables.choices_table(records).splitlines()
    assert lines[2].startswith("| recipe |") and "worse" in lines[3] and "| -" in lines[3] and lines[-1] == "Not run: later."
    (tmp_path / "records/untrained-1.zip").unlink()
    alone = row_tables.choices_table(evidence.read_records(tmp_path / "records")).splitlines()[3]
    assert "(one seed) | 1 | -" in alone and "| – | `vitral train untrained`" in alone, "one seed carries no test"


def test_a_row_says_which_seeds_ran_elsewhere() -> None:
    read = evidence.read_records(RECORDS)
    gpu, cpu = read["cifar10-fast"], read["digits"]
    assert evidence.machines(gpu) == "one H200"
    assert evidence.machines([*gpu[:2], cpu[2]]) == "one H200; seed 2: 1 CPU thread"


# ---- the guide and the concepts --------------------------------------------------------------------------------------------------


GUIDES = sorted(page for part in ("guide", "concepts") for page in (ROOT / "docs" / part).glob("*.md"))
LOG = ROOT / "docs/LOG.md"
PRINTED = re.compile(r"<!-- printed: ([^\n]+) -->\n(.*?)<!-- /printed -->", re.DOTALL)
"""What a command prints, to the letter."""
ASKED = re.compile(r"(?<![\d.])\d+(?:\.\d)? %")
"""On the pages of results: what was asked for or claimed. What came out has two decimals, or no sign."""
WITH_UNIT = re.compile(r"[\d.]+ (?:ms|s|MB|GB|GiB)\b")


def without_labels() -> list[str]:
    """The rows of the table in pre-training.md: means over seeds, which no source has."""
    measured, lines = read_json(ROOT / "results/measured/without-labels.json")["rows"], []
    for method, name in (("random", "random weights"), *((each, f"`{each}`") for each in ("lejepa", "dino", "mae"))):
        rows = [row for row in measured if row["method"] == method]
        assert [row["seed"] for row in rows] == [0, 1, 2] and not any(row["alarms"] for row in rows)
        cells = [
            f"{np.mean([row[key] for row in rows]):.1f} ({', '.join(f'{row[key]:.1f}' for row in rows)})"
            for key in ("linear", "neighbours", "five labels a class", "validation")
        ]
        seconds = sorted(row["cpu_seconds"] for row in rows)
        cells.append("" if method == "random" else f"{seconds[0]} to {seconds[-1]}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def sections(text: str) -> list[str]:
    return re.split(r"^(?=#+ )", text, flags=re.MULTILINE)


def sources(section: str, page: Path) -> Iterator[str]:
    """What a section links: a page of docs/results, a file of results/, an entry of the diary, a transcript, a figure of others in
    cited.toml. And what it shows of a command's output."""
    yield from (shown for _, shown in PRINTED.findall(section))
    cited = {figure["source"]: figure["says"] for figure in build.toml("cited")["figure"]}
    entries = {
        re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", entry[2:].partition("\n")[0]).strip().lower()): entry
        for entry in sections(LOG.read_text(encoding="utf-8"))
    }
    for target, anchor in re.findall(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)", section):
        there = (page.parent / target).resolve()
        if target in cited:
            yield cited[target]
        elif there == LOG:
            yield entries.get(anchor, "")  # the whole diary holds nearly every number
        elif there.suffix == ".txt":
            yield there.read_text(encoding="utf-8")
        elif there.is_file() and (ROOT / "docs/results" in there.parents or ROOT / "results" in there.parents):
            yield ASKED.sub("", there.read_text(encoding="utf-8"))


def unfounded(text: str, page: Path) -> set[str]:
    """The accuracies of a page that no source of their section states."""
    for line in without_labels():
        text = text.replace(line, "")
    found = set()
    for section in sections(text):
        known = {figure.rstrip(" %") for source in sources(section, page) for figure in STATED.findall(source)}
        stated = NO_ACCURACY.sub("", WITH_UNIT.sub("", PRINTED.sub("", section)))
        shown = set(STATED.findall("\n".join(line for line in stated.splitlines() if line.startswith("    "))))
        prose = set(STATED.findall("\n".join(line for line in stated.splitlines() if not line.startswith("    "))))
        found |= {figure for figure in prose if figure.rstrip(" %") not in known}
        found |= {figure for figure in shown if figure.rstrip(" %") not in known and not is_rounded(figure.rstrip(" %"), known)}
    return found


def is_rounded(figure: str, known: set[str]) -> bool:
    """Whether a figure as commands print it, with one decimal, is one of a source, which has two."""
    if len(figure.partition(".")[2]) != 1:
        return False
    return any(
        len(one.partition(".")[2]) == 2 and abs(float(one) - float(figure)) < 0.0551 for one in known if one.replace(".", "").isdigit()
    )


def test_a_rounded_figure_is_known_by_its_source_and_no_other() -> None:
    assert is_rounded("80.4", {"80.37", "81"}) and is_rounded("95.7", {"95.65"})
    assert not is_rounded("80.4", {"80.47"}) and not is_rounded("80.4", {"80.4 per cent"}) and not is_rounded("80.37", {"80.36"})


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_an_accuracy_in_the_guide_or_the_concepts_is_in_a_source_that_its_section_links(page: Path) -> None:
    found = unfounded(page.read_text(encoding="utf-8"), page)
    assert not found, f"{page.name}: {', '.join(sorted(found))}: link the record, the measurement or the entry of the diary that has it"


@pytest.mark.parametrize(
    ("written", "lacking"),
    [
        ("It has 97.01 % ([records](../results/records.md)).", False),
        ("It has 97.02 % ([records](../results/records.md)).", True),
        ("It has 97.01 %.", True),
        ("It has 97.2 % ([records](../results/records.md)).", True),  # the aim
        ("It has 97 % ([records](../results/records.md)).", True),
        ("It had 77.23 % ([diary](../LOG.md#cifar-10-from-scratch)).", False),
        ("It had 77.23 % ([diary](../LOG.md)).", True),
        ("It had 77.23 % ([diary](../LOG.md#fine-tuning)).", True),
        ("test accuracy 100.00%", True),
        ("a 95 % interval in 65.4 ms", False),
    ],
)
def test_a_source_has_to_say_it(written: str, lacking: bool) -> None:
    assert bool(unfounded(f"# Page\n\n{written}\n", GUIDES[0])) == lacking


def test_what_is_learnt_without_labels_is_told_as_measured() -> None:
    page = (ROOT / "docs/concepts/pre-training.md").read_text(encoding="utf-8")
    assert all(line in page for line in without_labels())


SHOWN = [(page, *found) for page in GUIDES for found in PRINTED.findall(page.read_text(encoding="utf-8"))]


def test_tables_that_a_command_prints_are_found() -> None:
    assert {page.stem for page, _, _ in SHOWN} == {"cluster", "statistics"}
    assert len(SHOWN) == sum(page.read_text(encoding="utf-8").count("<!-- printed") for page in GUIDES)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command", "shown"), SHOWN, ids=lambda value: value.stem if isinstance(value, Path) else None)
def test_a_table_is_what_its_command_prints(page: Path, command: str, shown: str) -> None:
    program, *words = shlex.split(command)
    assert program == "python"
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == shown.strip(), f"{page.name}: {done.stdout}{done.stderr}"
