from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import torch
from PIL import Image

from vitral.base.errors import UsageError
from vitral.build import create
from vitral.cli import main
from vitral.cli.explore import split_arguments
from vitral.web.server.serve import bind
from vitral.weights.checkpoint import save


@pytest.fixture
def run(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    return save(create("tiny"), tmp_path / "run")


def test_model_and_pictures_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert split_arguments(("timm:vit", "a.png")) == ("timm:vit", ("a.png",))
    monkeypatch.chdir(tmp_path)
    for targets in ((), ("cat.JPG",)):
        with pytest.raises(UsageError, match="runs/demo"):
            split_arguments(targets)
    demo = tmp_path / "runs" / "demo"
    demo.mkdir(parents=True)
    (demo / "model.safetensors").touch()
    assert split_arguments(("cat.JPG", "dog.png")) == ("runs/demo", ("cat.JPG", "dog.png"))


def test_export_writes_one_page(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.BytesIO()
    Image.new("RGB", (40, 40), "teal").save(out, "PNG")
    (tmp_path / "teal.png").write_bytes(out.getvalue())
    page = tmp_path / "page.html"
    assert main(["explore", str(run), str(tmp_path / "teal.png"), "--compare", str(run), "--export", str(page)]) == 0
    assert "page.html" in capsys.readouterr().out
    assert "(again)" in page.read_text(encoding="utf-8")


def test_a_live_page_holds_both_models(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["explore", str(run), "--compare", str(run), "--export", str(page), "--live"]) == 0
    assert "page.html" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert all(f'id="{part}"' in text for part in ("kernel", "model-0", "model-1", "models/0/figures", "models/1/figures"))


def test_serving_takes_the_flags(run: Path, live: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    listening = bind("127.0.0.1", 0)
    wanted = listening.getsockname()[1]
    listening.close()
    port = live(lambda: main(["explore", str(run), "--port", str(wanted), "--no-browser", "--device", "cpu"]))
    assert port == wanted and f"http://127.0.0.1:{port}/ " in capsys.readouterr().err
    session = httpx.get(f"http://127.0.0.1:{port}/api/session").json()
    assert [model["name"] for model in session["models"]] == [run.name]
    assert [picture["name"] for picture in session["pictures"]] == ["china.jpg", "flower.jpg"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "vitral demo"),
        (["RUN", "missing.png"], 1, "missing.png"),
        (["nowhere"], None, "nowhere"),
        (["RUN", "--nothing"], 2, "--help"),
    ],
)
def test_errors_are_one_line(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int | None,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    got = main(["explore", *[str(run) if each == "RUN" else each for each in arguments]])
    error = capsys.readouterr().err
    assert got == code if code is not None else got in (1, 2)
    assert words in error
    assert "Traceback" not in error


def test_without_the_web_extra_the_way_out_is_named(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "vitral.web.server.serve")
    assert main(["explore", str(run)]) == 2
    assert "the explorer needs uvicorn: pip install 'vitral[web]'; --export works without it" in capsys.readouterr().err
