"""Every script in examples/ runs, offline, in an empty folder."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "adopt_with_proof": "same classes: True",
    "compare_two_models": "that is no proof that they are equal",
    "export_to_hugging_face": "largest difference of the logits",
    "load_and_look": "strongest at patch",
    "make_shards": "train-000001.tar",
    "own_method": "carried, block 1",
    "switch_a_head_off": "logits move by at most",
    "train_digits": "test accuracy",
    "train_on_a_folder": "('crimson', 'teal')",
}
"""What each prints when it has worked."""


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAYS)


SLOW = {"compare_two_models"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in sorted(SAYS)])
def test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("sys.argv", [f"{name}.py"])
    torch.manual_seed(0)
    with warnings.catch_warnings():
        # What other libraries warn of is not the example's affair; what Vitral warns of is.
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", module="vitral")
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert SAYS[name] in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(SAYS))
def test_examples_are_short_and_say_what_they_show(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert text.startswith('"""') and len(text.splitlines()) <= 30
