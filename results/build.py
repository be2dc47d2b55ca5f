"""make results: every generated table and figure of docs/results and of the README, from the records alone.

A page holds `<!-- results:NAME -->` … `<!-- /results -->`; what stands between is replaced by the table of that name below. Studies in
records/ get a table each under `study:NAME`; those that ask one thing with one budget after another get one under `study:NAME+NAME`, whose
tests are counted together. `--check` writes nothing and fails where a page is not what the records make.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

import claim_tables
import row_tables
import speed_tables
from claim_tables import claims
from evidence import ROOT, Record, learning, read_records, read_studies, rows
from gallery_list import REPORTS
from install_lines import install_lines
from missing import toml
from speed_tables import speed_table
from study_tables import study_table

from vitral.base import layout
from vitral.base.files import read_json, sha256_bytes
from vitral.base.text import counted
from vitral.draw.curves import training_curves
from vitral.draw.provenance import save_figure

FIGURES = ROOT / "docs/images/results/records"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs/results").glob("*.md")))
MARKED = re.compile(r"(<!-- results:([\w:.+-]+) -->\n).*?(<!-- /results -->)", re.DOTALL)
FROM_RECORDS: dict[str, Callable[[dict[str, list[Record]]], str]] = {
    "readme": row_tables.readme_table,
    "readme-numbers": row_tables.numbers_list,
    "records": row_tables.records_table,
    "times": row_tables.times_table,
    "sealed": row_tables.sealed_table,
    "choices": row_tables.choices_table,
    "duplicates": row_tables.duplicates_table,
    "curves": row_tables.curves_list,
}
FROM_FILES: dict[str, Callable[[], str]] = {
    "claims": claim_tables.summary_table,
    "queue": claim_tables.queue_table,
    "quantised": speed_tables.quantised_table,
    "worst-layers": speed_tables.worst_layers_table,
    "speed": partial(speed_table, "peers"),
    "speed-eager": partial(speed_table, "peers-eager", flags="--sizes b/16 --compile no --rounds 6"),
    "speed-cpu": partial(speed_table, "peers-cpu"),
    "readme-speed": speed_tables.readme_speed_table,
    "install": install_lines,
    "fp8": speed_tables.fp8_table,
}


def filled(text: str, made: dict[str, str]) -> str:
    """A page with what stands between its marks made anew."""

    def one(match: re.Match[str]) -> str:
        if match[2] not in made:
            raise SystemExit(f"results:{match[2]} is no table: use one of {', '.join(made)}")
        return f"{match[1]}\n{made[match[2]]}\n\n{match[3]}"

    return MARKED.sub(one, text)


def make() -> dict[str, str]:
    """Name → table."""
    records, studies = read_records(), read_studies()
    made = {name: of_records(records) for name, of_records in FROM_RECORDS.items()} | {name: text() for name, text in FROM_FILES.items()}
    for report in dict.fromkeys(claim["report"] for claim in claims()):
        made[f"claims:{report}"] = claim_tables.claims_table(report, records, studies)
    for report in dict.fromkeys(figure.chapter for figure in REPORTS):
        made[f"figures:{report}"] = claim_tables.report_figures(report)
    made |= {f"audit:{path.stem}": row_tables.audit_table(path.stem) for path in sorted(row_tables.AUDITS.glob("*.json"))}
    made |= {f"cited:{cited['name']}": row_tables.cited_table(cited, records) for cited in toml("cited")["table"]}
    together = {
        match[2].removeprefix("study:") for page in PAGES for match in MARKED.finditer(page.read_text(encoding="utf-8")) if "+" in match[2]
    }
    shown = {name: [studies[one] for one in name.split("+")] for name in (*studies, *sorted(together))}
    return made | {f"study:{name}": study_table(*paths) for name, paths in shown.items()}


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
