from __future__ import annotations

import io
import stat
import sys

import pytest
from PIL import Image

import vitral
from vitral.draw.film import _LAST, animate

FRAMES = [Image.new("RGB", (31, 20), colour) for colour in ("navy", "teal", "orange")]


@pytest.mark.parametrize("ending", ["webp", "gif"])
def test_frames_and_times(ending: str) -> None:
    moving = Image.open(io.BytesIO(animate(FRAMES, ending, 0.2) or b""))
    assert (moving.n_frames, moving.size) == (3, (31, 20))
    moving.seek(2)
    moving.load()
    assert moving.info["duration"] == _LAST * 200
    assert sum(abs(a - b) for a, b in zip(moving.convert("RGB").getpixel((5, 5)), (255, 165, 0), strict=True)) < 12


def test_mp4_is_ffmpegs_work(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert animate(FRAMES, "mp4") is None
    program = tmp_path / "ffmpeg"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.write(f'{{sys.stdin.buffer.read().count(b\"IEND\")}} {{sys.argv}}')\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    told = (animate(FRAMES, "mp4", 0.25) or b"").decode()
    assert told.startswith(f"{3 + _LAST - 1} ") and "'-framerate', '4'" in told
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no encoder')\n")
    with pytest.raises(vitral.VitralError, match="encoder"):
        animate(FRAMES, "mp4")


def test_what_cannot_move_is_refused() -> None:
    with pytest.raises(vitral.VitralError, match="0 frames"):
        animate([], "gif")
    with pytest.raises(vitral.VitralError, match="2 sizes"):
        animate([FRAMES[0], Image.new("RGB", (8, 8))], "gif")
    with pytest.raises(vitral.VitralError, match="0 seconds"):
        animate(FRAMES, "gif", 0)
