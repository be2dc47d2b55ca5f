"""vitral completion bash|zsh|fish: a script that completes verbs, flags and names when Tab is pressed.

The script asks `vitral completion words WORD…` what may follow, so it has no list of its own and never grows old. That takes a tenth of a
second, because nothing slow (PyTorch) is imported. shtab would need a second parser (argparse) and has no fish; argcomplete asks too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from vitral.cli import VERBS
from vitral.cli.parsing import flags_of, parse, short
from vitral.config.flags import Flag

EXAMPLES = """Print a script that completes verbs, flags and names in your shell. Write it to where the shell looks for it.

bash needs the package bash-completion. zsh needs fpath+=~/.zfunc before compinit in ~/.zshrc, or another folder of fpath.

Examples:
  vitral completion bash > ~/.local/share/bash-completion/completions/vitral
  vitral completion zsh > ~/.zfunc/_vitral
  vitral completion fish > ~/.config/fish/completions/vitral.fish
  source <(vitral completion bash)  # for this shell alone
  source <(vitral completion zsh)  # for this shell alone, after compinit
"""
_SCRIPTS = {
    "bash": r"""_vitral() {
    local IFS=$'\n'
    COMPREPLY=($("$1" completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null))
    COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
}
complete -o default -F _vitral vitral""",
    "zsh": r"""#compdef vitral
_vitral() {
    local -a offers=(${(f)"$("$words[1]" completion words "${(@)words[2,CURRENT]}" 2> /dev/null)"})
    offers=(${${offers//:/\\:}/$'\t'/:})
    if ((#offers)); then _describe vitral offers; else _files; fi
}
if [[ $funcstack[1] == _vitral ]]; then _vitral "$@"; else compdef _vitral vitral; fi""",
    "fish": r"""function __vitral_words
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    $words[1] completion words $words[2..] "$word" 2> /dev/null
end
complete -c vitral -a '(__vitral_words)'""",
}


@dataclass(frozen=True)
class _Flags:
    shell: Annotated[Literal["bash", "zsh", "fish"], "SHELL"]
    """The shell that you use."""


def run(arguments: list[str]) -> int:
    if arguments[:1] == ["words"]:
        for word, text in offers(arguments[1:]):
            print(f"{word}\t{text}" if text else word)
    else:
        print(_SCRIPTS[parse(_Flags, arguments, "vitral completion", EXAMPLES).shell])
    return 0


def commands(verb: str) -> dict[str, tuple[list[Flag], str]]:
    """Command of the verb ("": it has none) → its flags and its help, for the completion and for the pages of the reference."""
    module = importlib.import_module(f"vitral.cli.{verb}")
    if hasattr(module, "COMMANDS"):
        return {name: (flags_of(kind), text) for name, (kind, text, _) in module.COMMANDS.items()}
    if verb in ("plan", "pretrain"):
        return {"": (importlib.import_module("vitral.cli.train").flags(verb), module.EXAMPLES)}
    return {"": (module.flags() if hasattr(module, "flags") else flags_of(module._Flags), module.EXAMPLES)}


def offers(words: list[str]) -> list[tuple[str, str]]:
    """(word, what it does) of all that may take the place of the last word."""
    *before, word = words or [""]
    return [(offer, text) for offer, text in _possible(before, word).items() if offer.startswith(word)]


def _possible(before: list[str], word: str) -> dict[str, str]:
    if not before:
        return {**VERBS, "--help": "", "--version": ""}
    verb, *before = before
    if verb not in VERBS:
        return {}
    of_verb = commands(verb)
    if "" not in of_verb and not before:
        return dict.fromkeys(of_verb, "")
    flags, _ = of_verb.get("" if "" in of_verb else before.pop(0), ([], ""))
    if before and (flag := next((flag for flag in flags if before[-1] in flag.names), None)) and flag.most and not flag.positional:
        return dict.fromkeys(_values(verb, flag), "")
    if word.startswith("-"):
        return {flag.names[0]: short(flag.text) for flag in flags if not flag.positional} | {"--help": "", "--help-all": ""}
    positional = [flag for flag in flags if flag.positional]
    takes_value = {name for flag in flags if flag.most for name in flag.names}
    count = sum(not typed.startswith("-") and last not in takes_value for last, typed in zip(["", *before], before, strict=False))
    if not positional or (count >= len(positional) and positional[-1].most == 1):
        return {}
    return dict.fromkeys(_values(verb, positional[min(count, len(positional) - 1)]), "")


def _values(verb: str, flag: Flag) -> Iterable[str]:
    if flag.choices:
        return flag.choices
    name = "runs" if verb in ("train", "plan") and flag.field == "run" else _NAMED.get(flag.names[0])
    return _LISTS[name]() if name else ()


def _names(module: str, table: str) -> Callable[[], Iterable[str]]:
    return lambda: getattr(importlib.import_module(module), table)


_LISTS: dict[str, Callable[[], Iterable[str]]] = {
    "runs": _names("vitral.presets.runs", "RUNS"),
    "models": _names("vitral.presets.models", "MODELS"),
    "data": lambda: [*importlib.import_module("vitral.data.sources.catalogue").CATALOGUE, "folder:"],
    "gpus": _names("vitral.cost.time", "GPUS"),
    "devices": lambda: ("auto", "cpu", "cuda", "mps"),
}
_NAMED = dict.fromkeys(("DATA", "DATA…", "NAME", "--data", "--from-data", "--training-data"), "data") | {
    "--model": "models",
    "--gpu": "gpus",
    "--device": "devices",
}
"""Flag → the names that it takes; all other words are paths, which the shell completes."""
