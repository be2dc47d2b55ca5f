"""make results: every generated table and figure of docs/results and the README, from the records alone.

A page holds `<!-- results:NAME -->` … `<!-- /results -->`; what stands between is replaced by the table of that name below. Studies in
records/ get a table each under `study:NAME`. `--check` writes nothing and fails where a page is not what the records make.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from gallery_list import REPORTS
from make_gallery import entry
from missing import Job, missing, toml

from vitral.base import layout
from vitral.base.files import read_json, sha256_bytes
from vitral.base.manifest import check, read_manifest
from vitral.base.text import NOTHING, byte_size, counted, duration, table
from vitral.draw.curves import training_curves
from vitral.draw.provenance import save_figure
from vitral.run.answers import Answers
from vitral.run.folder import RunFolder
from vitral.study.bench import NOT_ASKED
from vitral.study.conclude import compare_pairs
from vitral.study.statistics import accuracy_interval, holm, paired_bootstrap

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORDS = HERE / "records"
FIGURES = ROOT / "docs/images/results/records"
PAGES = (ROOT / "README.md", *sorted(HERE.glob("*.md")))
MARKED = re.compile(r"(<!-- results:([\w:.-]+) -->\n).*?(<!-- /results -->)", re.DOTALL)
QUANTISED = HERE / "quantised"
"""proof.json of each quantised model that is published."""
DUPLICATES = HERE / "duplicates.json"
"""Data set → positions of test pictures that have a near copy among the training pictures, as `vitral data check` found them, and the hash
of the labels in whose order they stand."""


MEASURED = HERE / "measured"
"""What single commands printed, kept by `checks.py keep`."""
PEERS, PEERS_EAGER, PEERS_ON_CPU = (MEASURED / f"{name}.json" for name in ("peers", "peers-eager", "peers-cpu"))
FP8 = MEASURED / "fp8.json"
TOLD = {("training step", "compiled"), ("inference", "compiled"), ("inference of one", "eager"), ("all attention maps", "eager")}
"""What the README tells of speed."""
WORDS = {"holds": "holds", "does not": "does not hold", "partly": "in part", "cannot": "cannot be tested here", "open": "not run yet"}
PLACES = {"size": "training pictures", "pretrained": "pre-training pictures", "shots": "shots", "share": "part of the budget"}
"""What tells cells of one model apart, with its heading."""


@dataclass(frozen=True)
class Record:
    """One seed of a published row."""

    path: Path
    manifest: dict[str, Any]
    run: RunFolder

    @property
    def seed(self) -> int:
        return self.manifest["seed"]

    @property
    def times(self) -> dict[str, Any]:
        return self.run.environment.get("times", {})

    def right(self, split: str = "test") -> np.ndarray:
        return Answers.read(self.path, split).right


def read_records(folder: Path = RECORDS) -> dict[str, list[Record]]:
    """Name of the row → its seeds. A record that is not what was written is refused."""
    found: dict[str, list[Record]] = {}
    for path in sorted(path for path in folder.iterdir() if (path / layout.CONFIG).is_file()):
        check(path)
        manifest = read_manifest(path) or {}
        found.setdefault(manifest["record"], []).append(Record(path, manifest, RunFolder(path)))
    return {name: sorted(records, key=lambda record: record.seed) for name, records in found.items()}


def read_studies(folder: Path = RECORDS) -> dict[str, Path]:
    studies = {path.name: path for path in sorted(folder.iterdir()) if (path / layout.STUDY).is_file()}
    for path in studies.values():
        check(path)
    return studies


# ---- what a row says -------------------------------------------------------------------------------------------------------------


def accuracy(records: list[Record], split: str = "test", kept: np.ndarray | None = None) -> str:
    """`96.91 (96.57 to 97.26)`: per cent, with the interval over seeds and pictures; one seed has none. `kept`: of these pictures alone."""
    labels = {Answers.read(record.path, split).labels.tobytes() for record in records}
    if len(labels) > 1:
        raise SystemExit(f"the seeds of {records[0].manifest['record']} were tested on other pictures: they cannot stand in one row")
    right = np.stack([record.right(split) for record in records])
    right = right if kept is None else right[:, kept]
    if len(right) == 1:
        return f"{100 * right.mean():.2f} (one seed)"
    found = accuracy_interval(right)
    return f"{100 * found.mean:.2f} ({100 * found.low:.2f} to {100 * found.high:.2f})"


def probed(records: list[Record]) -> str:
    """The accuracy, and beside a linear probe's that of nearest neighbours, where every seed has both."""
    if not all((record.path / layout.answers_name(layout.NEIGHBOURS)).is_file() for record in records):
        return accuracy(records)
    return f"{accuracy(records)}; by neighbours {accuracy(records, layout.NEIGHBOURS)}"


def machine(record: Record) -> str:
    environment = record.run.environment
    if gpu := environment.get("gpu"):
        return f"one {gpu.removeprefix('NVIDIA ')}"
    threads = environment["threads"]
    return f"{threads} CPU thread{'s' * (threads != 1)}"


def timed(records: list[Record], part: str) -> str:
    """The fastest seed that ran alone; where none did, the fastest, which is an upper bound."""
    alone = [record for record in records if record.manifest.get("alone")]
    values = [value for record in alone or records if (value := record.times.get(part)) is not None and not record.times.get("resumed")]
    return NOTHING if not values else f"{'' if alone else '≤ '}{duration(min(values))}"


def compiled(records: list[Record], how: str) -> str:
    values = [record.times["compilation"] for record in records if record.times.get("compiled") == how]
    return duration(min(values)) if values else NOTHING


def rows() -> list[dict[str, Any]]:
    return toml("rows")["row"]


# ---- the tables ------------------------------------------------------------------------------------------------------------------


def readme_table(records: dict[str, list[Record]]) -> str:
    lines = []
    for row in (row for row in rows() if row.get("readme") and row["record"] in records):
        own = records[row["record"]]
        time = f"{timed(own, 'training')} ({timed(own, 'total')}) on {machine(own[0])}"
        lines.append([row["title"], accuracy(own), str(len(own)), time])
    note = (
        "Per cent on test; in brackets the 95 % interval over seeds and test pictures. Time: training, in brackets from command to result."
    )
    note += " ≤: measured beside other work." if any("≤" in line[3] for line in lines) else ""
    return f"{table(lines, ['', 'test accuracy', 'seeds', 'time'], 'lrll', markdown=True)}\n\n{note}"


def records_table(records: dict[str, list[Record]]) -> str:
    header = ["what", "asked", "aim", "test", "each seed", "test pictures", "command", "machine"]
    lines = []
    for row in rows():
        if not (own := records.get(row["record"])):
            continue
        each = ", ".join(f"{record.seed}: [{100 * record.right().mean():.2f}](records/{record.path.name})" for record in own)
        pictures = f"{len(own[0].right()):,}"
        asked, aim = row.get("asked", NOTHING), row.get("aim", NOTHING)
        told = probed(own)
        told += f"; {difference(records, row['record'], row['beside'])}" if row.get("beside") in records else ""
        lines.append([row["title"], asked, aim, told, each, pictures, f"`{row['command']}`", machine(own[0])])
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
            verdict = ("worse" if test.difference < 0 else "better") if adjusted[name] <= 0.05 else "not told apart"
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


def study_table(path: Path) -> str:
    """The table and the tests of one study, computed anew from the answers of its cells."""
    result = read_json(path / layout.RESULT)
    groups: dict[tuple[Any, ...], dict[str, list[np.ndarray]]] = {}
    apart = [name for name in PLACES if len({cell.get(name) for cell in result["cells"]}) > 1] or ["size"]
    for cell in result["cells"]:
        right = Answers.read(path / layout.CELLS / cell["cell"]).right
        group = groups.setdefault(tuple(cell.get(name, 0) for name in apart), {})
        group.setdefault(cell["model"], []).append(right)
    own_rows = [row for row in result["rows"] if row["split"] == result["cells"][0]["split"]]
    lines, several = [], {}
    for place, models in groups.items():
        for model, seeds in models.items():
            own = next(row for row in own_rows if (row["model"], *(row.get(name, 0) for name in apart)) == (model, *place))
            found = accuracy_interval(np.stack(seeds)) if len(seeds) > 1 else None
            shown = f"{100 * found.mean:.2f} ({100 * found.low:.2f} to {100 * found.high:.2f})" if found else f"{100 * own['mean']:.2f}"
            lines.append([*map(_place, place), model, shown, str(len(seeds)), f"{own['parameters']:,}", f"{own['seconds']:.1f}"])
        several[place] = {model: np.stack(seeds) for model, seeds in models.items() if len(seeds) > 1}
    pairs = [(place, pair) for place, found in compare_pairs(several).items() for pair in found]
    where = [PLACES[name] for name in apart]
    aligned = "r" * len(apart) + "lr"
    header = [*where, "model", "test accuracy (95 %)", "seeds", "parameters", "seconds"]
    parts = [f"{result['data']}, {result['budget']}.", table(lines, header, aligned, markdown=True)]
    if pairs:
        tested = [
            [*map(_place, place), f"{pair.ranked[0]} − {pair.ranked[1]}", _points(pair), pair.told_p, "yes" if pair.different else "no"]
            for place, pair in pairs
        ]
        head = [*where, "pair", "points (95 %)", f"Holm over {len(pairs)}", "told apart"]
        parts.append(table(tested, head, aligned, markdown=True))
    parts += [f"- {gap['way'] + ': ' if 'way' in gap else ''}{gap['text']}." for gap in result.get("gaps", ())]
    parts += [f"- {name}: {found['text']}." for name, found in result.get("crossings", {}).items()]
    return "\n\n".join(parts)


def _place(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _points(pair: Any) -> str:
    low, high = sorted(100 * end * (1 if pair.difference > 0 else -1) for end in pair.interval)
    return f"{100 * abs(pair.difference):.2f} ({low:.2f} to {high:.2f})"


# ---- figures of others ----------------------------------------------------------------------------------------------------------


def cited_table(cited: dict[str, Any], records: dict[str, list[Record]]) -> str:
    """A table as others published it, with its source; beside it ours where a record has the same."""
    ours: dict[str, list[str]] = cited.get("ours", {})
    columns = [[accuracy(records[name]) if name in records else NOTHING for name in names] for names in ours.values()]
    lines = [[*row, *own] for row, *own in zip(cited["rows"], *columns, strict=True)]
    source = f"{cited['note']}. Source: {cited['source']}."
    if ours:
        source += " Ours: mean and 95 % interval as in [the records](records.md)."
    return f"{table(lines, [*cited['header'], *ours], 'lr', markdown=True)}\n\n{source}"


# ---- the claims of the reports ---------------------------------------------------------------------------------------------------


def claims() -> list[dict[str, Any]]:
    return toml("claims")["claim"]


def is_run(claim: dict[str, Any], records: dict[str, list[Record]], studies: dict[str, Path]) -> bool:
    """Whether what a claim waits for is there; one that waits for nothing is answered by what stands beside it."""
    waits = [name for name in (claim.get("record"), claim.get("beside"), *claim.get("steps", ()), claim.get("study")) if name]
    return all(name in records or name in studies for name in waits)


def claimed(claim: dict[str, Any], records: dict[str, list[Record]], studies: dict[str, Path]) -> str:
    """Our figure with n and interval, out of a record, a study or a measurement."""
    if "measured" in claim:
        return claim["figure"].format(**read_json(MEASURED / f"{claim['measured']}.json"))
    if not is_run(claim, records, studies):
        return "not run"
    if "record" in claim:
        own = records[claim["record"]]
        told = f"{accuracy(own)}, n = {len(own)}"
        return f"{told}; {difference(records, claim['record'], claim['beside'])}" if "beside" in claim else told
    if "steps" in claim:
        return "; ".join(f"{name}: {steps_to(records[name])}" for name in claim["steps"])
    if "study" in claim:
        return study_means(studies[claim["study"]])
    return "not run" if claim["verdict"] == "open" else NOTHING


def difference(records: dict[str, list[Record]], *names: str) -> str:
    """`b − a: 0.18 (−0.09 to 0.47) points, p = 0.16` of two records, picture by picture; one seed has neither interval nor p."""
    right = {name: np.stack([one.right() for one in records[name]]) for name in names}
    if min(map(len, right.values())) < 2:
        better, worse = sorted(names, key=lambda name: -right[name].mean())
        return f"{better} − {worse}: {100 * (right[better].mean() - right[worse].mean()):.2f} points"
    (pair,) = compare_pairs({"": right})[""]
    return f"{pair.ranked[0]} − {pair.ranked[1]}: {_points(pair)} points, {pair.told_p}"


def steps_to(records: list[Record], levels: Sequence[float] = (0.5, 0.6, 0.7)) -> str:
    """Optimizer steps after which validation first had this accuracy, the mean over seeds."""
    told = []
    for level in levels:
        first = [
            next((line["step"] for line in record.run.metrics if line["split"] == "validation" and line["accuracy"] >= level), None)
            for record in records
        ]
        reached = [step for step in first if step is not None]
        told.append(f"{level:.0%} after {np.mean(reached):,.0f}" if len(reached) == len(first) else f"{level:.0%} not reached")
    return f"{', '.join(told)} steps, n = {len(records)}"


def study_means(path: Path) -> str:
    """`vit 92.50 (90.10 to 94.20)` for each model, where they were trained with the largest part of everything."""
    cells = read_json(path / layout.RESULT)["cells"]
    most = {name: max(cell.get(name, 0) for cell in cells) for name in ("size", "pretrained", "share")}
    chosen = [cell for cell in cells if not cell.get("shots") and all(cell.get(name, 0) in (0, value) for name, value in most.items())]
    told, seeds = [], 0
    for model in dict.fromkeys(cell["model"] for cell in chosen):
        right = np.stack([Answers.read(path / layout.CELLS / cell["cell"]).right for cell in chosen if cell["model"] == model])
        found, seeds = accuracy_interval(right) if len(right) > 1 else None, len(right)
        interval = f" ({100 * found.low:.2f} to {100 * found.high:.2f})" if found else ""
        told.append(f"{model} {100 * right.mean():.2f}{interval}")
    return f"{'; '.join(told)}; n = {seeds}"


def claims_table(report: str, records: dict[str, list[Record]], studies: dict[str, Path]) -> str:
    lines = [
        [
            claim["where"],
            claim["claim"],
            claim["command"] if claim["command"] in ("–", "the same") else f"`{claim['command']}`",
            claimed(claim, records, studies),
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


def curves_list(records: dict[str, list[Record]]) -> str:
    titles = {row["record"]: row["title"] for row in rows()}
    return "\n".join(
        f"![{titles.get(name, name).replace('`', '')}](../images/results/records/{name}-curves.png)" for name in learning(records)
    )


def learning(records: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """Those that have a curve: a probe of frozen features takes no step."""
    return {name: own for name, own in records.items() if any(line["split"] == "train" for line in own[0].run.metrics)}


def quantised_table(_: dict[str, list[Record]]) -> str:
    """Every proof.json of quantised/, by its name: int8 beside fp32."""
    lines = []
    for path in sorted(QUANTISED.glob("*.json")):
        proof = read_json(path)
        found = {one["name"]: one for one in proof["versions"]}
        for name, one in found.items():
            speed = "" if one["speed"] is None else f"{one['speed']:.2f} × ({one['spread'][0]:.2f} to {one['spread'][1]:.2f})"
            whole = one["pictures"] == proof["pictures"]  # scores of fewer pictures cannot be set beside those of all
            scored = "" if one["top1"] is None or not whole else f"{100 * one['top1']:.2f} %"
            error = "" if one["calibration"] is None or not whole else f"{one['calibration']:.4f}"
            same, change = f"{100 * one['same']:.2f} %", f"{one['largest']:.3f}"
            size = f"{one['bytes'] / 1e6:.2f} MB"
            lines.append([path.stem, name, size, f"{one['pictures']:,}", same, scored, error, change, speed])
    header = [
        "model",
        "",
        "size",
        "pictures",
        "same answers",
        "top-1",
        "calibration error",
        "largest logit change",
        "speed (10 to 90 % of the rounds)",
    ]
    return table(lines, header, "llr", markdown=True)


def worst_layers_table(_: dict[str, list[Record]]) -> str:
    """The layers that hurt most, of every proof that tried them one by one."""
    lines = []
    for path in sorted(QUANTISED.glob("*.json")):
        for layer in read_json(path)["layers"][:8]:
            lines.append([path.stem, layer["name"], f"{layer['typical']:.4f}", f"{layer['largest']:.3f}", f"{100 * layer['share']:.1f} %"])
    return table(lines, ["model", "layer", "typical change of a logit", "largest", "share of the squares"], "llr", markdown=True)


# ---- speed -----------------------------------------------------------------------------------------------------------------------


def speed_table(file: Path, short: bool = False, flags: str = "") -> str:
    """Vitral beside other libraries out of a file of benchmarks/peers.py; `short`: the four things that the README tells."""
    command = f"python benchmarks/peers.py {flags}--out docs/results/measured/{file.name}"
    if not file.is_file():
        return f"Not measured yet: `{command}`."
    runs = read_json(file)
    names = list(dict.fromkeys(row["contestant"] for run in runs for row in run["rows"]))
    lines = []
    for run in runs:
        kinds = dict.fromkeys((row["action"], row["mode"]) for row in run["rows"])
        for action, mode in kinds:
            if short and (action, mode) not in TOLD:
                continue
            own = {row["contestant"]: row for row in run["rows"] if (row["action"], row["mode"]) == (action, mode)}
            ours = own[names[0]]
            what = [run["model"], f"{action}, {mode}", f"{ours['images']:,}", _took(ours)]
            share = f"{ours['share_of_peak']:.0%}" if ours["share_of_peak"] else NOTHING
            memory = byte_size(ours["memory"]) if ours["memory"] else NOTHING
            rest = [] if short else [share, memory]
            lines.append([*what, *(_beside(own.get(name)) for name in names[1:]), *rest])
    header = ["model", "", "images", "Vitral", *names[1:], *([] if short else ["of peak", "memory"])]
    first, versions = runs[0], {name: version for run in runs for name, version in run["versions"].items()}
    gpu, threads, torch = (first["machine"][key] for key in ("gpu", "threads", "torch"))
    where = f"one {gpu.removeprefix('NVIDIA ')}, bf16" if first["device"] == "cuda" else f"{threads} CPU thread{'s' * (threads != 1)}"
    libraries = ", ".join(f"{name} {version}" for name, version in {"torch": torch.partition("+")[0], **versions}.items())
    note = (
        f"{where}, {libraries}; `{command}`, median of {first['rounds']} rounds in turn. Columns of others: their time over ours"
        " within a round (above 1, ours is faster), 10 to 90 % of the rounds in brackets; ≈: the rounds differ by more than the two do."
    )
    parts = [table(lines, header, "llr", markdown=True), note]
    if not short:
        looks = [
            [run["model"], name, f"{middle:.2f} ({low:.2f} to {high:.2f})"]
            for run in runs
            for name, (middle, low, high) in run["looking"].items()
        ]
        parts.append(table(looks, ["model", "", "ratio (10 to 90 % of the rounds)"], "llr", markdown=True))
        absent = {f"- {run['model']}: {name} is absent: {why}" for run in runs for name, why in run["absent"].items() if why != NOT_ASKED}
        parts += ["\n".join(sorted(absent))] if absent else []
    return "\n\n".join(parts)


def fp8_table() -> str:
    """Ours in fp8 and in bf16 beside timm in bf16 out of measured/fp8.json, and what fp8 did to answers."""
    found = read_json(FP8)
    lines = [
        [row["size"], f"{row['pictures']:,}", row["contestant"], f"{row['milliseconds']:,.3g} ms", _times(row)]
        for row in found["rows"]
        if row["contestant"] != "timm"
    ]
    ratios = table(lines, ["model", "images", "", "a pass", "timm's time in bf16 over it"], "lrl", markdown=True)
    answers = [
        [
            one["model"],
            one["data"],
            f"{one['pictures']:,}",
            f"{one['same_answer']:.1%}",
            *(_share(one.get(k)) for k in ("usual", "fp8")),
            one["device"],
        ]
        for one in found["answers"]
    ]
    heads = ["weights", "photographs of", "pictures", "same answer", "right before", "right in fp8", "on"]
    return f"{ratios}\n\n{table(answers, heads, 'llr', markdown=True)}"


def _times(row: dict[str, Any]) -> str:
    return f"{row['timm_over_it']:.2f} × ({row['low']:.2f} to {row['high']:.2f})"


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1%}"


def _took(row: dict[str, Any]) -> str:
    """Images a second of many, milliseconds or seconds of one."""
    if row["images"] > 1:
        return f"{row['images'] / row['seconds']:,.0f}/s"
    return f"{1e3 * row['seconds']:,.3g} ms" if row["seconds"] < 1 else f"{row['seconds']:,.3g} s"


def _beside(row: dict[str, Any] | None) -> str:
    if row is None:
        return NOTHING
    low, high = row["interval"]
    return f"{row['ratio']:.2f} × ({low:.2f} to {high:.2f})" if row["told"] else "≈"


TABLES: dict[str, Callable[[dict[str, list[Record]]], str]] = {
    "readme": readme_table,
    "records": records_table,
    "times": times_table,
    "sealed": sealed_table,
    "choices": choices_table,
    "duplicates": duplicates_table,
    "curves": curves_list,
    "quantised": quantised_table,
    "worst-layers": worst_layers_table,
    "speed": lambda _: speed_table(PEERS),
    "speed-eager": lambda _: speed_table(PEERS_EAGER, flags="--sizes b/16 --compile no --rounds 6 "),
    "speed-cpu": lambda _: speed_table(PEERS_ON_CPU),
    "readme-speed": lambda _: speed_table(PEERS, short=True),
    "fp8": lambda _: fp8_table(),
}


# ---- writing ---------------------------------------------------------------------------------------------------------------------


def filled(text: str, made: dict[str, str]) -> str:
    """A page with what stands between its marks made anew."""

    def one(match: re.Match[str]) -> str:
        if match[2] not in made:
            raise SystemExit(f"results:{match[2]} is no table: use one of {', '.join(made)}")
        return f"{match[1]}\n{made[match[2]]}\n\n{match[3]}"

    return MARKED.sub(one, text)


def make() -> dict[str, str]:
    records = read_records()
    studies = read_studies()
    made = {name: function(records) for name, function in TABLES.items()}
    made |= {f"claims:{report}": claims_table(report, records, studies) for report in dict.fromkeys(claim["report"] for claim in claims())}
    made |= {f"figures:{report}": report_figures(report) for report in dict.fromkeys(figure.chapter for figure in REPORTS)}
    made |= {f"cited:{cited['name']}": cited_table(cited, records) for cited in toml("cited")["table"]}
    made |= {"claims": summary_table(), "queue": queue_table()}
    return made | {f"study:{name}": study_table(path) for name, path in studies.items()}


def figure_inputs(records: dict[str, list[Record]]) -> dict[str, str]:
    """Figure → the hash of the journals it is drawn from: what a figure shows can be checked without comparing pixels."""
    packed = {
        name: b"".join((record.path / layout.PACKED_METRICS).read_bytes() for record in own) for name, own in learning(records).items()
    }
    return {f"{name}-curves": sha256_bytes(content) for name, content in packed.items()}


def draw(records: dict[str, list[Record]]) -> None:
    for name, digest in figure_inputs(records).items():
        stored = FIGURES / f"{name}.json"
        if stored.is_file() and read_json(stored).get("journals") == digest:
            continue
        record = name.removesuffix("-curves")
        own = records[record]
        command = next((row["command"] for row in (*rows(), *toml("rows")["choice"]) if row["record"] == record), record)
        figure = training_curves({record: [one.run.metrics for one in own]}, title=f"{command}, {counted(len(own), 'seed')}")
        save_figure(figure, FIGURES / name, {}, {"journals": digest}, "Training dashed, validation solid.", formats=("png",))
        print(f"drawn: {FIGURES / name}.png")


def main(arguments: list[str]) -> int:
    made, wrong = make(), []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = filled(text, made)
        if new != text:
            wrong.append(page.relative_to(ROOT).as_posix())
            if "--check" not in arguments:
                page.write_text(new, encoding="utf-8")
                print(f"written: {wrong[-1]}")
    if "--check" in arguments:
        print("\n".join(f"{page} is not what the records make: make results" for page in wrong), end="\n" if wrong else "")
        return 1 if wrong else 0
    draw(read_records())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
