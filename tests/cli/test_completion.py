"""Completion: what Tab offers, and that each shell asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vitral.cli import VERBS, main
from vitral.cli.completion import commands, offers
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
    ("vitral train digits --model s/1", {name for name in MODELS if name.startswith("s/1")}),
    ("vitral train digits --epochs 3 --device c", {"cpu", "cuda"}),
    ("vitral audit runs/digits fas", {"fashion-mnist"}),
    ("vitral audit --pictures 3 runs/digits fas", {"fashion-mnist"}),
    ("vitral data get mn", {"mnist"}),
    ("vitral weights convert a b --format t", {"timm", "torchvision"}),
    ("vitral weights inspect --ag", {"--against"}),
    ("vitral completion ", {"bash", "zsh", "fish"}),
    ("vitral look ", set()),
    ("vitral eval x y --out ", set()),
    ("vitral nothing --", set()),
]
IN_SHELLS = [OFFERED[0], OFFERED[5], OFFERED[8]]

BASH = """source "$1"
read -ra COMP_WORDS <<< "$2"
[[ $2 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_vitral vitral
printf '%s\\n' "${COMPREPLY[@]}"
"""
# The builtins that only work while a line is typed, in a few words; what they are given is what would be offered.
ZSH = """compdef() { : }
_files() { : }
_describe() { print -l -r -- ${${(P)2}%%:*} }
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
SHELLS = {"bash": ["bash", "-c", BASH, "-"], "zsh": ["zsh", "-f", "-c", ZSH, "-"], "fish": ["fish", "--no-config", "-c", FISH]}


@pytest.mark.parametrize(("line", "expected"), OFFERED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_offered(line: str, expected: set[str]) -> None:
    words = line.split()[1:] + [""] * line.endswith(" ")
    assert {word for word, _ in offers(words)} == expected


def test_every_verb_and_every_flag_is_offered_with_what_it_does() -> None:
    assert {word for word, _ in offers([""])} == {*VERBS, "--help", "--version"}
    for verb in VERBS:
        for command, (flags, _) in commands(verb).items():
            found = dict(offers([*(word for word in (verb, command) if word), "-"]))
            assert {*found} == {flag.names[0] for flag in flags if not flag.positional} | {"--help", "--help-all"}
            assert all(found[flag.names[0]] for flag in flags if not flag.positional)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_asks(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert main(["completion", shell]) == 0
    script, nothing = tmp_path / f"vitral.{shell}", tmp_path / "nothing"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    nothing.mkdir()  # no file's name comes between
    (tmp_path / "vitral").write_text(f'#!/bin/sh\nexec {sys.executable} -m vitral "$@"\n')
    (tmp_path / "vitral").chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    for line, expected in IN_SHELLS:
        asked = [*SHELLS[shell], str(script), line]
        done = subprocess.run(asked, capture_output=True, text=True, cwd=nothing, check=True, env=environment)
        assert not done.stderr and {word.partition("\t")[0] for word in done.stdout.splitlines()} == expected


@pytest.mark.parametrize("arguments", [["completion", "words", "train", "--"], ["--help"], ["train", "--help"]], ids=" ".join)
def test_it_answers_without_anything_slow(arguments: list[str]) -> None:
    code = f"import sys; from vitral.cli import main; main({arguments!r}); sys.exit(str({{'torch', 'numpy'}} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    assert done.stderr == "set()\n"


def test_a_shell_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "use bash, zsh, fish" in capsys.readouterr().err
    assert main(["completion", "zsh", "--loud"]) == 2
    assert "unknown flag --loud" in capsys.readouterr().err
