"""Kernels on a machine without a GPU: Triton's interpreter, which is chosen before Triton is imported, so in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run_interpreted(script: str) -> None:
    """A script that compares a kernel with its twin and prints "the same" at its end."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "the same", done.stderr[-2000:]
