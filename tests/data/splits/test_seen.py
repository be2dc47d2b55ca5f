from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from vitral.base.errors import DataError
from vitral.config import DataConfig
from vitral.data.images.preprocess import Preprocess
from vitral.data.splits.open import Data, open_data, open_split
from vitral.data.splits.seen import SeenImages
from vitral.data.splits.split import Split

SIZE = Preprocess((8, 8))


def names(split: Split) -> set[str]:
    return {"/".join(Path(split.where(position)).parts[-2:]) for position in range(len(split))}


def opened(folder: Path, learnt: SeenImages | None = None, **settings: float) -> Data:
    return open_data(DataConfig(name=f"folder:{folder}", **settings), preprocess=SIZE, seen=learnt)  # type: ignore[arg-type]


def seen_by(data: Data) -> SeenImages:
    splits = data.seen()
    assert splits is not None
    return SeenImages("runs/pets", splits)


def more(folder: Path, count: int) -> set[str]:
    """Pictures that come later, among and after the others."""
    made = set()
    for number in range(count):
        name = f"cat/{number:02d}-more.png"
        shutil.copyfile(folder / "cat" / "03.png", folder / name)
        with open(folder / name, "ab") as file:
            file.write(bytes(number + 1))
        made.add(name)
    return made


def test_what_was_seen_never_comes_into_a_test_split_that_is_drawn_again(photographs: Path, capsys: pytest.CaptureFixture[str]):
    data = opened(photographs, validation=0.2)
    seen, train, test = names(data.train) | names(data.validation), names(data.train), names(data.test())
    learnt = seen_by(data)
    again = opened(photographs, learnt, validation=0.2)
    assert (names(again.train), names(again.test())) == (train, test) and not capsys.readouterr().err

    new = more(photographs, 7)
    assert names(opened(photographs, validation=0.2).test()) & seen, "drawn anew, it holds what was learnt from"
    later = opened(photographs, learnt, validation=0.2)
    assert names(later.test()) == test | new and names(later.train) == train and names(later.validation) == names(data.validation)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"({len(test | new)} pictures not seen then, 0 seen ones gone)" in said and "runs/pets" in said
    assert names(open_split(later.config, SIZE, "test", learnt)) == test | new and not capsys.readouterr().err, "said once"


def test_pictures_that_are_moved_are_known_again(photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data = opened(photographs, validation=0.2)
    learnt, train, seen = seen_by(data), names(data.train), names(data.train) | names(data.validation)
    moved = sorted(name for name in train if name.startswith("cat"))[:2]
    shutil.move(photographs, tmp_path / "all")
    shutil.move(tmp_path / "all", photographs / "train")
    for name in moved:
        (photographs / "test" / "cat").mkdir(parents=True, exist_ok=True)
        shutil.move(photographs / "train" / name, photographs / "test" / name)
    shutil.copyfile(photographs / "train/dog/00.png", photographs / "test/cat/new.png")
    later = opened(photographs, learnt, validation=0.2)
    assert names(later.test()) == {"cat/new.png"} and not names(later.validation) & train
    assert names(open_split(later.config, SIZE, None, learnt)) == {"cat/new.png"}
    assert len(open_split(later.config, SIZE, None)) == 3 and seen
    assert "runs/pets" in capsys.readouterr().err


def test_same_names_in_two_classes_are_two_pictures(tmp_path: Path):
    from PIL import Image

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(10):  # uncompressed: all of one size
            Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(tmp_path / name / f"{number}.bmp")
    data = opened(tmp_path)
    learnt, test = seen_by(data), names(data.test())
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "a" / "10.bmp")
    assert names(opened(tmp_path, learnt).test()) == test | {"a/10.bmp"}


def test_what_a_subset_left_out_is_neither_learnt_nor_test(photographs: Path):
    data = opened(photographs, validation=0.2, subset=4)
    learnt, test, train = seen_by(data), names(data.test()), names(data.train)
    new = more(photographs, 7)
    later = opened(photographs, learnt, validation=0.2, subset=4)
    assert names(later.train) == train and len(train) == 4 and names(later.test()) == test | new


def test_a_file_that_was_passed_over_changes_no_split(photographs: Path, capsys: pytest.CaptureFixture[str]):
    (photographs / "cat" / "00-broken.png").write_bytes(b"no picture")
    config = DataConfig(name=f"folder:{photographs}", on_bad_image="skip")
    data = open_data(config, preprocess=SIZE)
    capsys.readouterr()
    assert names(open_split(config, SIZE, "test", seen_by(data))) == names(data.test())
    assert "divided otherwise" not in capsys.readouterr().err


def test_of_a_run_that_kept_its_fingerprint_alone_a_changed_folder_is_refused(photographs: Path):
    before = opened(photographs)
    learnt = SeenImages("runs/old", {}, before.fingerprints()["train"])
    assert names(opened(photographs, learnt).test()) == names(before.test())
    more(photographs, 1)
    with pytest.raises(DataError, match="runs/old"):
        opened(photographs, learnt)
    assert len(opened(photographs, SeenImages("runs/older")).test()), "nothing is known: nothing is said"


def test_named_sets_and_arrays_write_nothing_down():
    assert open_data(DataConfig(name="digits")).seen() is None
