"""Tables of rows: accuracies, times, choices, near-duplicates, and what others published."""

from __future__ import annotations

from typing import Any

import numpy as np
from evidence import HERE, Record, accuracy, compiled, differences, learning, machine, machines, probed, rows, timed
from missing import toml

from vitral.base.files import read_json, sha256_bytes
from vitral.base.text import NOTHING, table
from vitral.run.answers import Answers
from vitral.study.audit.verdict import USE
from vitral.study.fight.statistics import LEVEL, holm, paired_bootstrap

AUDITS = HERE / "audits"
AUDIT = AUDITS / "vit-tiny-pets.json"
"""The one that the README speaks of."""
AUDIT_TESTS = ("planted patch", "four in one", "removal", "permuted weights", "small changes", "classes")
REFERENCE_VERDICT = "reference"
PEERS = HERE / "measured/peers.json"
FEW_LABELS = "flowers102-10"
CAVEAT = (
    "¹ CIFAR-10's test split was opened more than a hundred times, and the from-scratch recipe began as a script that looked at it."
    " These figures may be [a little too good](docs/results/records.md)."
)
DUPLICATES = HERE / "duplicates.json"
"""Data set → positions of test pictures that have a near copy among the training pictures, as `vitral data check` found them, and the hash
of the labels in whose order they stand."""


def readme_table(records: dict[str, list[Record]]) -> str:
    """The rows that have a short title for the README."""
    lines = []
    for row in (row for row in rows() if row.get("readme") and row["record"] in records):
        own = records[row["record"]]
        caveat = " ¹" if "cifar10" in row["command"] else " ²" if row["record"] == FEW_LABELS else ""
        time = f"{timed(own, 'training')}, {machine(own[0])}"
        lines.append([f"{row['readme']}{caveat}", accuracy(own), str(len(own)), f"{len(own[0].right()):,}", time])
    note = "Per cent on test, with the 95 % interval over seeds and test images. ViT-Ti: fine-tuned from its ImageNet weights."
    note += " Time: training of the fastest seed."
    note += " With ≤, other work ran on the machine." if any("≤" in line[4] for line in lines) else ""
    note += f" {CAVEAT}" if any("¹" in line[0] for line in lines) else ""
    note += " ² 10 labelled images per class." if any("²" in line[0] for line in lines) else ""
    return f"{table(lines, ['', 'test accuracy', 'seeds', 'images', 'time'], 'lrrrl', markdown=True)}\n\n{note}"


def numbers_list(records: dict[str, list[Record]]) -> str:
    """Three numbers of the README, each with its n and its record: an accuracy, a speed, and what an audit found."""
    lines = []
    if own := records.get(FEW_LABELS):
        mean = 100 * np.mean([record.right().mean() for record in own])
        what = f"**{mean:.2f} %** on Flowers-102 with 10 labelled images per class, fine-tuned from ViT-Ti"
        lines.append(f"- {what} ({len(own)} seeds, {len(own[0].right()):,} test images, [records](docs/results/records.md)).")
    if step := step_beside_timm():
        ratio, model, rounds = step
        what = f"**{ratio:.2f} ×** as many images per second as timm when both train a compiled ViT-{model.upper()} on one H200"
        lines.append(f"- {what} ({rounds} rounds, [speed](docs/results/speed.md)).")
    if AUDIT.is_file():
        audit = read_json(AUDIT)
        verdicts = [row["verdict"] for row in audit["rows"] if row["verdict"] != REFERENCE_VERDICT]
        what = f"**{verdicts.count(USE)} of {len(verdicts)}** attribution methods pass the audit of ViT-Ti"
        lines.append(f"- {what} ({audit['pictures']} photographs of pets, [verdicts](docs/results/audit.md)).")
    return "\n".join(lines)


def step_beside_timm() -> tuple[float, str, int] | None:
    """Vitral's compiled training step of b/16 beside timm's: the ratio, the model, the rounds."""
    runs = read_json(PEERS) if PEERS.is_file() else []
    for run in runs:
        for row in run["rows"]:
            if (run["model"], row["action"], row["mode"], row["contestant"]) == ("b/16", "training step", "compiled", "timm"):
                return row["ratio"], run["model"], run["rounds"]
    return None


def audit_table(name: str) -> str:
    """Every method of a published audit with the tests that the page explains, and its verdict."""
    audit = read_json(AUDITS / f"{name}.json")
    shown = [test for test in AUDIT_TESTS if any(test in row["tests"] for row in audit["rows"])]
    lines = [[row["method"], *(_tested(row["tests"].get(test)) for test in shown), row["verdict"]] for row in audit["rows"]]
    return table(lines, ["method", *shown, "verdict"], "l", markdown=True)


def _tested(test: dict[str, Any] | None) -> str:
    if test is None:
        return NOTHING
    mean, low, high = (f"{value:.2f}".replace("-", "−") for value in (test["mean"], *test["interval"]))
    return f"{mean} ({low} to {high})"


def records_table(records: dict[str, list[Record]]) -> str:
    header = ["what", "asked", "aim", "test", "each seed", "test pictures", "command", "machine"]
    lines, beside = [], differences(records, rows())
    for row in rows():
        if not (own := records.get(row["record"])):
            continue
        each = ", ".join(f"{record.seed}: [{100 * record.right().mean():.2f}](../../results/records/{record.name}.zip)" for record in own)
        pictures = f"{len(own[0].right()):,}"
        asked, aim = row.get("asked", NOTHING), row.get("aim", NOTHING)
        text = "; ".join([probed(own), *filter(None, [beside.get(row["record"])])])
        lines.append([row["title"], asked, aim, text, each, pictures, f"`{row['command']}`", machines(own)])
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
    present = [choice for choice in changes if choice["record"] in records]
    right = {choice["record"]: np.stack([one.right("validation") for one in records[choice["record"]]]) for choice in (recipe, *present)}
    repeated = {name for name in right if min(len(right[name]), len(right[recipe["record"]])) > 1}  # one seed carries no test
    tests = {
        choice["record"]: paired_bootstrap(right[choice["record"]], right[recipe["record"]])
        for choice in present
        if choice["record"] in repeated
    }
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    lines = []
    for choice in (recipe, *present):
        name, own = choice["record"], records[choice["record"]]
        points = f"{100 * (right[name].mean() - right[recipe['record']].mean()):+.2f}" if choice in present else NOTHING
        verdict = NOTHING
        if name in tests:
            test = tests[name]
            points = f"{100 * test.difference:+.2f} ({100 * test.low:+.2f} to {100 * test.high:+.2f})"
            verdict = ("worse" if test.difference < 0 else "better") if adjusted[name] < LEVEL else "not told apart"
        lines.append([choice["title"], accuracy(own, "validation"), str(len(own)), points, verdict, f"`{choice['command']}`"])
    header = ["", "validation", "seeds", "points to the recipe (95 %)", f"Holm over {len(tests)}", "command"]
    not_run = [choice["title"] for choice in changes if choice not in present]
    return table(lines, header, "lrrrl", markdown=True) + (f"\n\nNot run: {', '.join(not_run)}." if not_run else "")


def duplicates_table(records: dict[str, list[Record]]) -> str:
    """Accuracy with and without the test pictures that were found again among the training pictures."""
    searched = read_json(DUPLICATES) if DUPLICATES.is_file() else {}
    lines = []
    for row in rows():
        own = records.get(row["record"])
        entry = searched.get(own[0].run.settled.data.name) if own else None
        if not own or not entry:
            continue
        if sha256_bytes(Answers.read(own[0].path).labels.astype("u1").tobytes()) != entry["labels"]:
            raise SystemExit(f"{row['record']} was tested on {own[0].run.settled.data.name} in another order than duplicates.json knows")
        held = np.zeros(len(own[0].right()), bool)
        held[entry["positions"]] = True
        lines.append([row["title"], f"{held.sum():,}", accuracy(own), accuracy(own, mask=~held), accuracy(own, mask=held)])
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
