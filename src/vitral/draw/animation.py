"""Pictures one after the other → one moving file: WebP and GIF by Pillow, MP4 by ffmpeg where it is installed."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Sequence

from PIL import Image

from vitral.base.errors import UsageError

FORMATS = ("webp", "gif", "mp4")
_LAST = 4
"""How many times as long the last picture stays: it is what the film leads to."""


def animate(frames: Sequence[Image.Image], ending: str, seconds: float = 0.5) -> bytes | None:
    """The bytes of a WebP, GIF or MP4 file that shows each frame for `seconds`; None: MP4 where there is no ffmpeg."""
    if not frames or len({frame.size for frame in frames}) != 1:
        raise UsageError(f"{len(frames)} frames of {len({frame.size for frame in frames})} sizes", "give at least one, all of one size")
    if seconds <= 0:
        raise UsageError(f"{seconds} seconds a frame", "use something like 0.5")
    colour = [frame.convert("RGB") for frame in frames]
    if ending == "mp4":
        return _by_ffmpeg(colour, seconds)
    times = [round(1000 * seconds)] * (len(frames) - 1) + [round(1000 * seconds * _LAST)]
    options = {"save_all": True, "append_images": colour[1:], "duration": times, "loop": 0}
    out = io.BytesIO()
    if ending == "webp":
        colour[0].save(out, "WEBP", quality=78, method=4, **options)
    else:
        colour[0].save(out, "GIF", optimize=True, **options)
    return out.getvalue()


def _by_ffmpeg(frames: Sequence[Image.Image], seconds: float) -> bytes | None:
    program = shutil.which("ffmpeg")
    if program is None:
        return None
    pictures = io.BytesIO()
    for frame in [*frames, *[frames[-1]] * (_LAST - 1)]:
        frame.save(pictures, "PNG", compress_level=1)
    even = "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white"  # players want even sides, and this kind of colour
    command = [program, "-v", "error", "-f", "image2pipe", "-framerate", f"{1 / seconds:g}", "-i", "-", "-vf", even]
    command += ["-pix_fmt", "yuv420p", "-movflags", "frag_keyframe+empty_moov", "-f", "mp4", "-"]
    done = subprocess.run(command, input=pictures.getvalue(), capture_output=True)
    if done.returncode or not done.stdout:
        message = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(
            f"ffmpeg could not write the film ({message[-1] if message else 'no output'})", "leave mp4 out with --format webp gif"
        )
    return done.stdout
