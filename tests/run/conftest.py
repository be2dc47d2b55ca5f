from __future__ import annotations

import dataclasses

import pytest

from vitral.presets.runs import run
from vitral.train.fit import Run, fit


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small whole run."""
    model = dataclasses.replace(run("digits").model, width=16, depth=1, heads=2)
    config = run("digits", epochs=0.5, batch_size=64, threads=1, device="cpu", model=model)
    return fit(config, out=tmp_path_factory.mktemp("runs") / "trained", quiet=True)
