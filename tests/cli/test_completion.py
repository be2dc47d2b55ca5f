"""Completion in real shells: what Tab offers, from a script that holds all words, so that no Python starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vitral.cli import VERBS, main
from vitral.cli.completion import WORDS
from vitral.presets.models import MODELS
from vitral.presets.runs import RUNS

ROOT = Path(__file__).parents[2]

OFFERED: list[tuple[str, set[str]]] = [
    ("vitral tr", {"train"}),
    ("vitral weights ", {"inspect", "convert", "list"}),
    ("vitral train cifar10-f", {"cifar10-fast", "cifar10-finetune"}),
    ("vitral train ", set(RUNS)),
    ("vitral train digits --optim", {"--optimizer"}),
    ("vitral train digits --optimizer ", {"adamw", "sgd", "muon"}),
    ("vitral train digits --model s/1", {"s/14", "s/16"}),
    ("vitral train digits --epochs 3 --device c", {"cpu", "cuda"}),
    ("vitral look runs/digits photo.png --method roll", {"rollout"}),
    ("vitral look runs/digits photo.png --method rollout,gr", {"rollout,gradient_rollout", "rollout,gradcam"}),
    ("vitral audit runs/digits fas", {"fashion-mnist"}),
    ("vitral data get mn", {"mnist"}),
    ("vitral weights convert a b --format t", {"timm", "torchvision"}),
    ("vitral weights inspect --ag", {"--against"}),
    ("vitral completion ", {"bash", "zsh", "fish"}),
]

BASH = """source "$1"
read -ra COMP_WORDS <<< "$2"
[[ $2 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_vitral
printf '%s\\n' "${COMPREPLY[@]}"
"""
# The builtins that only work while a line is typed, in a few words; what they are given is what would be offered.
ZSH = """compdef() { : }
_files() { : }
compset() { prefix=${words[CURRENT]%,*}; [[ $words[CURRENT] == *,* ]] && prefix+=, || prefix= }
show() { for found in "$@"; do [[ $prefix$found == $words[CURRENT]* ]] && print -r -- "$prefix$found"; done }
compadd() { if [[ $1 == -a ]]; then [[ $2 == -S ]] && shift 2; show ${(P)2}; else show "$@"; fi }
_describe() { [[ $1 == -o ]] && shift; show ${${(P)2}%%:*} }
source "$1"
words=(${(s: :)2})
[[ $2 == *" " ]] && words+=("")
CURRENT=$#words
_vitral
exit 0
"""
FISH = """source $argv[1]
complete -C $argv[2]
"""


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / f"vitral.{request.param}"
    assert main(["completion", request.param]) == 0
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


def offered(shell: list[str], script: Path, line: str) -> set[str]:
    # An empty folder: no file's name comes between.
    done = subprocess.run([*shell, str(script), line], capture_output=True, text=True, cwd=script.parent / "nothing", check=True)
    assert not done.stderr
    return {word.partition("\t")[0] for word in done.stdout.splitlines()}


@pytest.mark.parametrize("script", ["bash"], indirect=True)
@pytest.mark.parametrize(("line", "expected"), OFFERED, ids=lambda value: value if isinstance(value, str) else "")
def test_bash(line: str, expected: set[str], script: Path) -> None:
    (script.parent / "nothing").mkdir()
    assert offered(["bash", "-c", BASH, "-"], script, line) == expected


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_offers_every_verb_and_every_flag_and_then_paths(script: Path) -> None:
    (script.parent / "nothing").mkdir()
    assert offered(["bash", "-c", BASH, "-"], script, "vitral ") == {*VERBS, "--help", "--version"}
    flags = offered(["bash", "-c", BASH, "-"], script, "vitral train digits --")
    assert {"--epochs", "--from", "--resume", "--json", "--help"} <= flags
    assert (
        offered(["bash", "-c", BASH, "-"], script, "vitral look ")
        == offered(["bash", "-c", BASH, "-"], script, "vitral eval x y --out ")
        == {""}
    )
    done = subprocess.run(["bash", "-c", f"source {script}; complete -p vitral"], capture_output=True, text=True, check=True)
    assert done.stdout == "complete -o default -F _vitral vitral\n"  # nothing of ours: the names of files


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize("script", ["zsh"], indirect=True)
@pytest.mark.parametrize(("line", "expected"), OFFERED, ids=lambda value: value if isinstance(value, str) else "")
def test_zsh(line: str, expected: set[str], script: Path) -> None:
    (script.parent / "nothing").mkdir()
    assert offered(["zsh", "-f", "-c", ZSH, "-"], script, line) == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize("script", ["fish"], indirect=True)
@pytest.mark.parametrize(("line", "expected"), OFFERED, ids=lambda value: value if isinstance(value, str) else "")
def test_fish(line: str, expected: set[str], script: Path) -> None:
    (script.parent / "nothing").mkdir()
    assert offered(["fish", "--no-config", "-c", FISH], script, line) == expected


def test_the_words_are_what_the_code_says(make_reference: Any) -> None:
    written, made = (json.loads(text) for text in (WORDS.read_text(encoding="utf-8"), make_reference.completions()))
    assert missing(written, made) == [], "python docs/make_reference.py"
    assert set(MODELS) >= set(written["names"]["models"]) > {"b/16", "cnn"}


def missing(one: Any, other: Any, path: str = "") -> list[str]:
    """What `one` has and `other` has not: a word that is new to the code may still be missing in what is offered, none may be wrong."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [fault for key, value in one.items() for fault in missing(value, other.get(key), f"{path}/{key}")]
    if isinstance(one, list) and isinstance(other, list):
        return [f"{path}: {value}" for value in one if value not in other]
    return [] if one == other else [f"{path}: {one}"]


@pytest.mark.parametrize("arguments", [["completion", "fish"], ["--help"], ["--version"]], ids=" ".join)
def test_it_answers_without_anything_slow(arguments: list[str]) -> None:
    code = f"import sys; from vitral.cli import main; main({arguments!r}); sys.exit(str({{'torch', 'numpy', 'tyro'}} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    assert done.stderr == "set()\n"


def test_a_shell_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "did you mean zsh, fish, bash?" in capsys.readouterr().err
    assert main(["completion", "zsh", "--loud"]) == 2
    assert "unknown flag --loud" in capsys.readouterr().err
