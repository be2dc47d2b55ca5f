"""Waits for commands and runs each in a child that may write only so many bytes to a file: python -m fuzz.short_of_room

The child is forked from here and not from the tests: where a process has computed gradients, PyTorch may refuse them in its children.
A line of input: [words, bytes]; a line of output: how it ended, as JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import resource
import sys

from fuzz.confined import confined
from vitral.cli import main


def limited(words: list[str], room: int) -> tuple[int, str]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        code = main(words)
    return code, said.getvalue()


if __name__ == "__main__":
    for line in sys.stdin:
        words, room = json.loads(line)
        ending = confined(lambda words=words, room=room: limited(words, room), memory=2**62, seconds=100)
        print(json.dumps(dataclasses.asdict(ending)), flush=True)
