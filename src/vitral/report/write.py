"""Any folder that Vitral wrote → its report."""

from __future__ import annotations

from pathlib import Path

from vitral.base.errors import DataError
from vitral.report.run import write_run_report
from vitral.report.study import PLAN, RESULT, write_study_report


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """The page of a run or a study, whichever the folder holds; its path."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder", "name the folder of a run or a study")
    if any((folder / name).is_file() for name in (PLAN, RESULT)):
        return write_study_report(folder, out)
    if (folder / "config.json").is_file():
        return write_run_report(folder, out)
    raise DataError(
        f"{folder} holds neither a run nor a study", "name a folder that `vitral train`, `vitral compare` or `vitral scale` wrote"
    )
