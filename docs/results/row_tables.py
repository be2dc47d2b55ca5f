"""Tables of rows: accuracies, times, choices, near-duplicates, and what others published."""

from __future__ import annotations

from typing import Any

import numpy as np
from evidence import HERE, Record, accuracy, compiled, differences, learning, machine, machines, probed, rows, timed
from missing import toml

from vitral.base.files import read_json, sha256_bytes
from vitral.base.text import NOTHING, table
from vitral.run.answers import Answers
from vitral.study.conclude import LEVEL
from vitral.study.statistics import holm, paired_bootstrap

DUPLICATES = HERE / "duplicates.json"
"""Data set → positions of test pictures that have a near copy among the training pictures, as `vitral data check` found them, and the hash
of the labels in whose order they stand."""


def readme_table(records: dict[str, list[Record]]) -> str:
    lines = []
    for row in (row for row in rows() if row.get("readme") and row["record"] in records):
        own = records[row["record"]]
        time = f"{timed(own, 'training')} ({timed(own, 'total')}) on {machine(own[0])}"
        lines.append([row["title"], accuracy(own), str(len(own)), time])
    note = "Per cent on test; in brackets the 95 % interval over seeds and test pictures. "
    note += "Time: the fastest seed's training, in brackets from command to result."
    note += " ≤: measured beside other work." if any("≤" in line[3] for line in lines) else ""
    return f"{table(lines, ['', 'test accuracy', 'seeds', 'time'], 'lrll', markdown=True)}\n\n{note}"


def records_table(records: dict[str, list[Record]]) -> str:
    header = ["what", "asked", "aim", "test", "each seed", "test pictures", "command", "machine"]
    lines, beside = [], differences(records, rows())
    for row in rows():
        if not (own := records.get(row["record"])):
            continue
        each = ", ".join(f"{record.seed}: [{100 * record.right().mean():.2f}](records/{record.path.name})" for record in own)
        pictures = f"{len(own[0].right()):,}"
        asked, aim = row.get("asked", NOTHING), row.get("aim", NOTHING)
        told = "; ".join([probed(own), *filter(None, [beside.get(row["record"])])])
        lines.append([row["title"], asked, aim, told, each, pictures, f"`{row['command']}`", machines(own)])
    return table(lines, header, "lllrllll", markdown=True)


def times_table(records: dict[str, list[Record]]) -> str:
    """What a user waits for: the best seed of each row."""
    header = [
        "what",
        "seeds alone",
        "start",
        "preparation",
        "compilation, cold",
        "cached",
        "training",
        "validation",
        "test",
        "command to result",
    ]
    lines = []
    for row in (row for row in rows() if row["record"] in records):
        own = records[row["record"]]
        alone = str(sum(bool(record.manifest.get("alone")) for record in own))
        parts = [timed(own, part) for part in ("start", "preparation")]
        cold, cached = compiled(own, "cold"), compiled(own, "cached")
        rest = [timed(own, part) for part in ("training", "validation", "test", "total")]
        lines.append([row["title"], alone, *parts, cold, cached, *rest])
    return table(lines, header, "lr", markdown=True)


def sealed_table(records: dict[str, list[Record]]) -> str:
    """Confirming runs: the same weights on test and on pictures that no choice has seen."""
    lines = []
    for name, own in records.items():
        if own[0].run.settled.opens[:1] == ("sealed",):
            gap = np.mean([record.right("test").mean() - record.right("sealed").mean() for record in own])
            lines.append([name, str(len(own)), accuracy(own), accuracy(own, "sealed"), f"{100 * gap:+.2f}"])
    if not lines:
        return "No confirming run has a record yet."
    return table(lines, ["row", "seeds", "test", "sealed", "test − sealed, points"], "lr", markdown=True)


def choices_table(records: dict[str, list[Record]]) -> str:
    """What the recipe stands on: one change at a time, judged on validation, as its difference to the recipe unchanged."""
    recipe, *changes = toml("rows")["choice"]
    if recipe["record"] not in records:
        return f"Not run yet: `{recipe['command']}`."
    known = [choice for choice in changes if choice["record"] in records]
    right = {choice["record"]: np.stack([one.right("validation") for one in records[choice["record"]]]) for choice in (recipe, *known)}
    several = {name for name in right if min(len(right[name]), len(right[recipe["record"]])) > 1}  # one seed carries no test
    tests = {
        choice["record"]: paired_bootstrap(right[choice["record"]], right[recipe["record"]])
        for choice in known
        if choice["record"] in several
    }
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    lines = []
    for choice in (recipe, *known):
        name, own = choice["record"], records[choice["record"]]
        points = f"{100 * (right[name].mean() - right[recipe['record']].mean()):+.2f}" if choice in known else NOTHING
        verdict = NOTHING
        if name in tests:
            test = tests[name]
            points = f"{100 * test.difference:+.2f} ({100 * test.low:+.2f} to {100 * test.high:+.2f})"
            verdict = ("worse" if test.difference < 0 else "better") if adjusted[name] < LEVEL else "not told apart"
        lines.append([choice["title"], accuracy(own, "validation"), str(len(own)), points, verdict, f"`{choice['command']}`"])
    header = ["", "validation", "seeds", "points to the recipe (95 %)", f"Holm over {len(tests)}", "command"]
    not_run = [choice["title"] for choice in changes if choice not in known]
    return table(lines, header, "lrrrl", markdown=True) + (f"\n\nNot run: {', '.join(not_run)}." if not_run else "")


def duplicates_table(records: dict[str, list[Record]]) -> str:
    """Accuracy with and without the test pictures that were found again among the training pictures."""
    known = read_json(DUPLICATES) if DUPLICATES.is_file() else {}
    lines = []
    for row in rows():
        own = records.get(row["record"])
        found = known.get(own[0].run.settled.data.name) if own else None
        if not own or not found:
            continue
        if sha256_bytes(Answers.read(own[0].path).labels.astype("u1").tobytes()) != found["labels"]:
            raise SystemExit(f"{row['record']} was tested on {own[0].run.settled.data.name} in another order than duplicates.json knows")
        held = np.zeros(len(own[0].right()), bool)
        held[found["positions"]] = True
        lines.append([row["title"], f"{held.sum():,}", accuracy(own), accuracy(own, kept=~held), accuracy(own, kept=held)])
    if not lines:
        return "No row whose data set was searched has a record yet."
    return table(lines, ["what", "near-duplicates in test", "all of test", "without them", "they alone"], "lr", markdown=True)


def cited_table(cited: dict[str, Any], records: dict[str, list[Record]]) -> str:
    """A table as others published it, with its source; beside it ours where a record has the same."""
    ours: dict[str, list[str]] = cited.get("ours", {})
    columns = [[accuracy(records[name]) if name in records else NOTHING for name in names] for names in ours.values()]
    lines = [[*row, *own] for row, *own in zip(cited["rows"], *columns, strict=True)]
    source = f"{cited['note']}. Source: {cited['source']}."
    if ours:
        source += " Ours: mean and 95 % interval as in [the records](records.md)."
    return f"{table(lines, [*cited['header'], *ours], 'lr', markdown=True)}\n\n{source}"


def curves_list(records: dict[str, list[Record]]) -> str:
    titles = {row["record"]: row["title"] for row in rows()}
    return "\n".join(
        f"![{titles.get(name, name).replace('`', '')}](../images/results/records/{name}-curves.png)" for name in learning(records)
    )
