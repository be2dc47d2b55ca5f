"""Tables of the reports' claims, each with our figure and the verdict; and of what they and the rows still wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from evidence import MEASURED, RECORDS, Record, accuracy, differences
from gallery_list import REPORTS
from make_gallery import entry
from missing import Job, missing, toml
from study_tables import study_means

from vitral.base.files import read_json
from vitral.base.text import NOTHING, percent, table

WORDS = {"holds": "holds", "does not": "does not hold", "partly": "in part", "cannot": "cannot be tested here", "open": "not run yet"}


def claims() -> list[dict[str, Any]]:
    return toml("claims")["claim"]


def is_run(claim: dict[str, Any], records: dict[str, list[Record]], studies: dict[str, Path]) -> bool:
    """Whether what a claim waits for is there; one that waits for nothing is answered by what stands beside it."""
    waits = [name for name in (claim.get("record"), claim.get("beside"), *claim.get("steps", ()), claim.get("study")) if name]
    return all(name in records or name in studies for name in waits)


def claimed(claim: dict[str, Any], records: dict[str, list[Record]], studies: dict[str, Path], beside: Mapping[str, str]) -> str:
    """Our figure with n and interval, out of a record, a study or a measurement; `beside`: what differs from another record."""
    if "measured" in claim:
        return claim["figure"].format(**read_json(MEASURED / f"{claim['measured']}.json"))
    if not is_run(claim, records, studies):
        return "not run"
    if "record" in claim:
        own = records[claim["record"]]
        text = f"{accuracy(own)}, n = {len(own)}"
        return f"{text}; {beside[claim['record']]}" if "beside" in claim else text
    if "steps" in claim:
        return "; ".join(f"{name}: {steps_to(records[name])}" for name in claim["steps"])
    if "study" in claim:
        return study_means(studies[claim["study"]])
    return "not run" if claim["verdict"] == "open" else NOTHING


def steps_to(records: list[Record], levels: Sequence[float] = (0.5, 0.6, 0.7)) -> str:
    """Optimizer steps after which validation first had this accuracy, the mean over seeds."""
    texts = []
    for level in levels:
        first = [
            next((line["step"] for line in record.run.metrics if line["split"] == "validation" and line["accuracy"] >= level), None)
            for record in records
        ]
        reached = [step for step in first if step is not None]
        texts.append(
            f"{percent(level, 0)} after {np.mean(reached):,.0f}" if len(reached) == len(first) else f"{percent(level, 0)} not reached"
        )
    return f"{', '.join(texts)} steps, n = {len(records)}"


def claims_table(report: str, records: dict[str, list[Record]], studies: dict[str, Path]) -> str:
    beside = differences(records, claims())
    lines = [
        [
            claim["where"],
            claim["claim"],
            claim["command"] if claim["command"] in ("–", "the same") else f"`{claim['command']}`",
            claimed(claim, records, studies, beside),
            f"**{WORDS[claim['verdict']]}**" + (f": {claim['why']}" if claim["why"] else ""),
        ]
        for claim in claims()
        if claim["report"] == report
    ]
    return table(lines, ["where", "claim", "command", "ours", "verdict"], "lllll", markdown=True)


def report_figures(report: str) -> str:
    """A report's figures with a photograph that may be shown, each with the command that made it."""
    return "\n\n".join(f"**{figure.title}**\n\n{entry(figure, '../images/reports')}" for figure in REPORTS if figure.chapter == report)


def summary_table() -> str:
    names = list(dict.fromkeys(claim["report"] for claim in claims()))
    lines = [
        [name, *(str(sum(claim["report"] == name and claim["verdict"] == verdict for claim in claims())) for verdict in WORDS)]
        for name in names
    ]
    waiting = sum(claim["verdict"] == "open" for claim in claims())
    return f"{table(lines, ['report', *WORDS.values()], 'lr', markdown=True)}\n\n{len(claims())} claims; {waiting} wait for a run."


def queue_table() -> str:
    """What has no record yet, in the order in which it is to be run; then what leaves none."""
    waiting: dict[str, list[Job]] = {}
    for job in missing(RECORDS):
        waiting.setdefault(job.record, []).append(job)
    lines = []
    for record, jobs in waiting.items():
        seeds = ", ".join(str(job.seed) for job in jobs if job.seed is not None) or NOTHING
        lines.append([record, seeds, f"`{jobs[0].published}`", f"{jobs[0].minutes:g}"])
    by_hand = {claim["claim"]: claim for claim in claims() if "minutes" in claim and not {"record", "study"} & claim.keys()}
    by_hand |= {other["title"]: other for other in toml("rows")["other"]}
    lines += [[f"{NOTHING} {what}", NOTHING, f"`{one['command']}`", f"{one['minutes']:g}"] for what, one in by_hand.items()]
    return table(lines, ["record", "seeds S", "command", "minutes (of a seed)"], "lllr", markdown=True)
