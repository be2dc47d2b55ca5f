"""Any folder that Vitral wrote → its report."""

from __future__ import annotations

from pathlib import Path

from vitral.base.errors import DataError, MissingError
from vitral.report.run import write_run_report
from vitral.report.study import is_study, write_study_report
from vitral.run.folder import RunFolder


def write_report(folder: str | Path, out: str | Path | None = None, maps: bool = True) -> Path:
    """The page of a run or a study, whichever the folder holds; its path."""
    folder = Path(folder)
    if not folder.is_dir():
        raise (DataError if folder.exists() else MissingError)(f"{folder} is no folder", "name the folder of a run or a study")
    if is_study(folder):
        return write_study_report(folder, out)
    if RunFolder(folder).exists:
        return write_run_report(folder, out, maps)
    raise DataError(
        f"{folder} holds neither a run nor a study", "name a folder that `vitral train`, `vitral compare` or `vitral scale` wrote"
    )
