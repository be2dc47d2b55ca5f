"""Keep what a stranger needs to check a published run: everything in its folder but the weights.

    python results/collect.py runs/cifar10 runs/cifar10-2 --alone
    python results/collect.py runs/confirmed --name cifar10-confirm --tar records.tar.gz
    python results/collect.py runs/compare-cifar10 --name compare-samples

A run becomes results/records/NAME-SEED.zip: asked.json, config.json, env.json (with the times), metrics.jsonl.gz, test.npz and, of a
confirming run, sealed.npz (labels, answers, probabilities; without labels neighbours.npz beside the linear probe's), and a manifest
with the SHA-256 of all of them and of the weights.
A study becomes records/NAME.zip: its own files, and of each cell the journal and the answers. The folder of a record is packed as it is.
`vitral diff RUN RECORD`, `vitral verify RECORD` and `make results` read them. Paths of the machine are cut to their last part.
"""

from __future__ import annotations

import argparse
import gzip
import io
import re
import shutil
import stat
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from vitral.base import layout
from vitral.base.errors import UsageError, VitralError
from vitral.base.files import make_folder, read_json, sha256_file, write_atomic, write_json
from vitral.base.manifest import check, read_manifest, write_manifest
from vitral.run.folder import RunFolder

RECORDS = Path(__file__).parent / "records"
SETTINGS = (layout.ASKED, layout.CONFIG, layout.ENVIRONMENT)
PROBED = ("test", layout.NEIGHBOURS)
"""What a linear probe and the nearest neighbours answered on the test pictures, of a run that learnt without labels."""
STUDY_FILES = (layout.STUDY, layout.TUNING, layout.RESULT, layout.TABLE)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN_OR_STUDY")
    parser.add_argument("--name", help="of the row; a run's default is the name it was started by")
    parser.add_argument("--out", type=Path, default=RECORDS)
    parser.add_argument("--alone", action="store_true", help="nothing else ran on the device, so that the times are its own")
    parser.add_argument("--tar", type=Path, help="also pack what was collected into this .tar.gz")
    flags = parser.parse_args(arguments)
    try:
        made = [collect(folder, flags.out, flags.name, flags.alone) for folder in flags.folders]
    except VitralError as error:
        print(f"collect: {error}", file=sys.stderr)
        return error.exit_code
    if flags.tar:
        with tarfile.open(flags.tar, "w:gz") as archive:
            for path in made:
                archive.add(path, path.name)
    for path in made:
        print(path, f"{path.stat().st_size:,} bytes")
    return 0


def collect(folder: Path, out: Path = RECORDS, name: str | None = None, alone: bool = False) -> Path:
    """The archive of a finished run or study; one that is there already is replaced."""
    if "record" in (read_manifest(folder) or {}):
        check(folder)
        return pack(folder, out / f"{folder.name}.zip")
    with tempfile.TemporaryDirectory() as temporary:
        write = _study if (folder / layout.STUDY).is_file() else _run
        name = write(folder, Path(temporary), name, alone)
        return pack(Path(temporary), out / f"{name}.zip")


def pack(folder: Path, archive: Path) -> Path:
    """The files of a folder as an archive: sorted and without dates, so that the same files give the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
        for name in sorted(_files(folder)):
            entry = zipfile.ZipInfo(name)  # of 1980-01-01, the first day that the format has
            entry.create_system, entry.external_attr, entry.compress_type = 3, (stat.S_IFREG | 0o644) << 16, zipfile.ZIP_DEFLATED
            made.writestr(entry, (folder / name).read_bytes())
    return write_atomic(archive, content.getvalue())


def _run(folder: Path, record: Path, name: str | None, alone: bool) -> str:
    """Write the files of a run's record; its name."""
    run = RunFolder.open(folder)
    digest = _weights(folder)
    if digest is None or run.is_record or (run.settled.opens and run.metrics[-1].get("split") != run.settled.opens[-1]):
        raise UsageError(f"{folder} is no finished run", "collect it when its training is over")
    name = name or (run.asked.run if run.asked else run.settled.name)
    for file in SETTINGS:
        if (folder / file).is_file():
            write_json(record / file, without_paths(read_json(folder / file)))
    _journal(folder, record)
    probed = [split for split in PROBED if run.settled.pretrain is not None and (folder / layout.answers_name(split)).is_file()]
    for split in run.settled.opens or probed:
        _answers(run, record, split)
    write_manifest(record, _files(record), record=name, seed=run.settled.train.seed, alone=alone, weights=digest)
    return f"{name}-{run.settled.train.seed}"


def _weights(folder: Path) -> str | None:
    """The SHA-256 of the weights; of those that stayed where they were trained, as the run's own manifest has it."""
    if (folder / layout.WEIGHTS).is_file():
        return sha256_file(folder / layout.WEIGHTS)
    vouched = read_json(folder / layout.MANIFEST).get("files", {}) if (folder / layout.MANIFEST).is_file() else {}
    return vouched.get(layout.WEIGHTS, {}).get("sha256")


def _study(folder: Path, record: Path, name: str | None, alone: bool) -> str:
    """Write the files of a study's record; its name."""
    if not (folder / layout.RESULT).is_file():
        raise UsageError(f"{folder} is no finished study", "collect it when it has a result.json")
    name = name or folder.name
    _study_files(folder, record)
    if (folder / layout.PRETRAINING).is_dir():
        before = make_folder(record / layout.PRETRAINING)
        _study_files(folder / layout.PRETRAINING, before)
        write_manifest(before, _files(before))  # a study of its own, as `vitral verify` reads it
    write_manifest(record, _files(record), record=name, alone=alone)
    return name


def _files(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


def _study_files(folder: Path, record: Path) -> None:
    for file in STUDY_FILES:
        if not (folder / file).is_file():
            continue
        if file.endswith(".json"):
            write_json(record / file, without_paths(read_json(folder / file)))
        else:
            shutil.copyfile(folder / file, record / file)
    for cell in sorted(path for path in (folder / layout.CELLS).iterdir() if (path / layout.CELL).is_file()):
        target = make_folder(record / layout.CELLS / cell.name)
        write_json(target / layout.CELL, without_paths(read_json(cell / layout.CELL)))
        if (cell / layout.METRICS).is_file():  # a probe has none
            _journal(cell, target)
        if (cell / layout.answers_name()).is_file():
            _answers(RunFolder(cell), target, "test", probabilities=False)


def _journal(folder: Path, record: Path) -> None:
    """Packed without a date: the same journal gives the same bytes."""
    write_atomic(record / layout.PACKED_METRICS, gzip.compress((folder / layout.METRICS).read_bytes(), 9, mtime=0))


def _answers(run: RunFolder, record: Path, split: str, probabilities: bool = True) -> None:
    """In the smallest whole numbers; most probable class first, probabilities in half precision, as the run itself keeps them."""
    answers = run.answers(split)
    small = np.uint8 if max(answers.labels.max(), answers.predictions.max()) < 256 else np.uint16
    values = {"predictions": answers.predictions.astype(small), "labels": answers.labels.astype(small)}
    if probabilities and answers.top is not None and answers.probabilities is not None:
        values |= {"top": answers.top.astype(small), "probabilities": answers.probabilities.astype(np.float16)}
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **values)
    write_atomic(record / layout.answers_name(split), content.getvalue())


def without_paths(value: Any) -> Any:
    """Where things lay on the machine that made the record is nobody's business, and other on the next one."""
    if isinstance(value, dict):
        return {key: without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_paths(inner) for inner in value]
    return re.sub(r"(?<![\w.])(?:/[^\s/:'\"]+)+/(?=[^\s/])", "", value) if isinstance(value, str) else value


if __name__ == "__main__":
    sys.exit(main())
