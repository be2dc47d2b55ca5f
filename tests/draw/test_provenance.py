from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.base.errors import UsageError
from vitral.base.version import __version__
from vitral.draw.charts import bar_chart
from vitral.draw.provenance import command_line, save_figure


def test_everything_beside_each_other(tmp_path: Path) -> None:
    figure = bar_chart(["a", "b"], [1.0, 2.0])
    numbers = {"values": np.array([1.0, 2.0]), "count": 2, "names": ["a", "b"]}
    paths = save_figure(
        figure, tmp_path / "deep" / "bars.v2", numbers, {"command": "vitral look", "model": "abc"}, "Two bars", ("png", "svg", "pdf")
    )
    assert [path.name for path in paths] == ["bars.v2.png", "bars.v2.svg", "bars.v2.pdf", "bars.v2.npz", "bars.v2.json"]
    with Image.open(paths[0]) as png:
        assert png.size == tuple(round(side * 200) for side in figure.get_size_inches())
        assert png.info["Description"] == "Two bars"
    assert paths[1].read_bytes().lstrip().startswith(b"<?xml")
    assert paths[2].read_bytes().startswith(b"%PDF")
    with np.load(paths[3]) as loaded:
        assert (loaded["values"] == [1, 2]).all()
        assert loaded["names"].tolist() == ["a", "b"]
    record = json.loads(paths[4].read_text())
    assert record["caption"] == "Two bars"
    assert record["model"] == "abc"
    assert record["versions"]["vitral"] == __version__
    assert record["numbers"]["values"] == {"shape": [2], "dtype": "float64"}
    assert record["files"] == [path.name for path in paths[:4]]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_figure_is_the_same_file(tmp_path: Path, ending: str) -> None:
    first, second = (save_figure(bar_chart(["a"], [1.0]), tmp_path / name, {}, {}, formats=(ending,))[0].read_bytes() for name in "ab")
    assert first == second


def test_a_plain_picture(tmp_path: Path) -> None:
    paths = save_figure(Image.new("RGB", (5, 4)), tmp_path / "x", {}, {})
    assert [path.name for path in paths] == ["x.png", "x.json"]
    with Image.open(paths[0]) as png:
        assert png.size == (5, 4)


def test_wrong_use_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'gif'"):
        save_figure(bar_chart(["a"], [1.0]), tmp_path / "x", {}, {}, formats=("gif",))
    with pytest.raises(UsageError, match="'ragged'"):
        save_figure(bar_chart(["a"], [1.0]), tmp_path / "x", {"ragged": np.array([[1], [1, 2]], dtype=object)}, {})
    assert list(tmp_path.iterdir()) == []


def test_the_command_as_typed() -> None:
    assert command_line(["/usr/bin/vitral", "look", "my cat.jpg"]) == "vitral look 'my cat.jpg'"
    assert command_line(["/x/vitral/__main__.py", "demo"]) == "vitral demo"
    assert command_line(["script.py"]) == "script.py"
