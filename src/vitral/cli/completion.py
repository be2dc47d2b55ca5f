"""vitral completion bash|zsh|fish: a script that completes verbs, flags and names. All its words are in it, so Tab starts no Python.

The words are a table, `words.json`, made from the flags of every verb by docs/make_reference.py: nothing slow is imported here.

    verbs      verb → what it does
    names      list → its words: named runs, models, data sets …
    commands   "train", "weights inspect" → words: for each place the list that goes there; "": a path
                                            flags: flag → [what it does, its values]
    values     null: a switch · "": anything, also a path · the name of a list; with a comma after it: several of them, so joined
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vitral.cli.parsing import parse, run_command

Table = dict[str, Any]

WORDS = Path(__file__).with_name("words.json")
PATHS_TOO = ("runs", "data")  # where a name goes, or a folder
EXAMPLES = """Verbs, flags and names at the press of Tab: prints a script, to be kept where your shell looks for it.

Examples:
  vitral completion bash > ~/.local/share/bash-completion/completions/vitral
  vitral completion zsh > ~/.zfunc/_vitral  # any folder of fpath
  vitral completion fish > ~/.config/fish/completions/vitral.fish
"""
BASH = """A script that completes in bash, 4.4 or newer. The file works where the package bash-completion is installed.

Examples:
  vitral completion bash > ~/.local/share/bash-completion/completions/vitral
  source <(vitral completion bash)  # for this shell alone
"""
ZSH = """A script that completes in zsh. The file works with fpath+=~/.zfunc before compinit in ~/.zshrc.

Examples:
  vitral completion zsh > ~/.zfunc/_vitral
  source <(vitral completion zsh)  # for this shell alone, after compinit
"""
FISH = """A script that completes in fish.

Examples:
  vitral completion fish > ~/.config/fish/completions/vitral.fish
  vitral completion fish | source  # for this shell alone
"""


@dataclass(frozen=True)
class Flags:
    """None: the script goes to where output goes."""


def run(arguments: list[str]) -> int:
    return run_command("completion", COMMANDS, EXAMPLES, arguments)


def _print(shell: str, arguments: list[str]) -> int:
    script, examples = SHELLS[shell]
    if arguments:
        parse(Flags, arguments, f"vitral completion {shell}", examples)
    print(script(json.loads(WORDS.read_text(encoding="utf-8"))), end="")
    return 0


def bash(table: Table) -> str:
    lists = "\n".join(f"    local {name}={shlex.quote(' '.join(words))}" for name, words in table["names"].items())
    return f"""# bash completion for vitral, made by `vitral completion bash`
_vitral() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}} place=$((COMP_CWORD - 2))
    local words="" prefix=""
    COMPREPLY=()
{lists}
    if ((COMP_CWORD == 1)); then
        words={shlex.quote(" ".join([*table["verbs"], "--help", "--version"]))}
    else
        case $command in
{_cases((verb, _bash_part(parts)) for verb, parts in _parts(table).items())}
        esac
        [[ $words ]] || case "$command $before" in
{_cases((_either(f"{command} {flag}" for command, flag in places), _bash_value(values)) for values, places in _values(table).items())}
        *)
            if [[ $word == -* ]]; then
                case $command in
{_cases((f'"{command}"', f'words="{" ".join([*about["flags"], "--help"])}"') for command, about in table["commands"].items())}
                esac
            else
                case "$command $place" in
{_cases((_either(places), f"words=${name}") for name, places in _places(table).items())}
                esac
            fi
            ;;
        esac
    fi
    COMPREPLY=($(compgen -P "$prefix" -W "$words" -- "${{word#"$prefix"}}"))
}}
complete -o default -F _vitral vitral
"""


def zsh(table: Table) -> str:
    lists = "\n".join(f"    local -a {name}=({' '.join(map(shlex.quote, words))})" for name, words in table["names"].items())
    verbs = " ".join(shlex.quote(f"{verb}:{line}") for verb, line in table["verbs"].items())
    return f"""#compdef vitral
# zsh completion for vitral, made by `vitral completion zsh`
_vitral() {{
    local word=$words[CURRENT] before=$words[CURRENT-1] command=$words[2] prefix=""
    local -i place=$((CURRENT - 3))
    local -a flags
{lists}
    if ((CURRENT == 2)); then
        local -a verbs=({verbs})
        _describe verb verbs
        return
    fi
    case $command in
{_cases((verb, _zsh_part(parts)) for verb, parts in _parts(table).items())}
    esac
    case "$command $before" in
{_cases((_either(f"{command} {flag}" for command, flag in places), _zsh_value(values)) for values, places in _values(table).items())}
    *)
        if [[ $word == -* ]]; then
            case $command in
{_cases((f'"{command}"', f"flags=({_zsh_flags(about['flags'])})") for command, about in table["commands"].items())}
            esac
            _describe -o flag flags
        else
            case "$command $place" in
{_cases((_either(places), _zsh_value(name)) for name, places in _places(table).items())}
            *) _files ;;
            esac
        fi
        ;;
    esac
}}
if [[ $funcstack[1] == _vitral ]]; then _vitral "$@"; else compdef _vitral vitral; fi
"""


def fish(table: Table) -> str:
    return "\n".join(_fish_lines(table)) + "\n"


def _fish_lines(table: Table) -> Iterator[str]:
    yield """# fish completion for vitral, made by `vitral completion fish`
function __vitral_is
    set -l words (commandline -opc)[2..]
    test (count $words) -ge (count $argv); and test "$words[1..$(count $argv)]" = "$argv"
end
function __vitral_at # a place, then the command
    test (count (commandline -opc)) -eq (math $argv[1] + (count $argv)); and __vitral_is $argv[2..]
end"""
    quoted = shlex.quote
    for verb, line in table["verbs"].items():
        yield f"complete -c vitral -f -n 'test (count (commandline -opc)) -eq 1' -a {verb} -d {_fish_quoted(line)}"
    for verb, parts in _parts(table).items():
        yield f"complete -c vitral -f -n {quoted(f'__vitral_at 0 {verb}')} -a {_fish_quoted(' '.join(parts))}"
    for command, about in table["commands"].items():
        for place, name in enumerate(about["words"]):
            if name:
                yield f"complete -c vitral -n {quoted(f'__vitral_at {place} {command}')} -a {_fish_quoted(' '.join(table['names'][name]))}"
        for flag, (line, values) in about["flags"].items():
            start = f"complete -c vitral -n {quoted(f'__vitral_is {command}')} -l {flag.removeprefix('--')} -d {_fish_quoted(line)}"
            words = " ".join(table["names"][values.rstrip(",")]) if values else ""
            if not values:
                yield start + ("" if values is None else " -r")
            elif values.endswith(","):
                yield f"{start} -x -a {_fish_quoted(f'(__fish_append , {words})')}"
            else:
                yield f"{start} {'-r' if values in PATHS_TOO else '-x'} -a {_fish_quoted(words)}"


def _parts(table: Table) -> dict[str, list[str]]:
    """Verb → its commands, of the verbs that have several."""
    found: dict[str, list[str]] = defaultdict(list)
    for command in table["commands"]:
        verb, _, part = command.partition(" ")
        if part:
            found[verb].append(part)
    return found


def _values(table: Table) -> dict[str, list[tuple[str, str]]]:
    """What may stand after a flag → the flags that take it, each with its command."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for command, about in table["commands"].items():
        for flag, (_, values) in about["flags"].items():
            if values is not None:
                found[values].append((command, flag))
    return found


def _places(table: Table) -> dict[str, list[str]]:
    """List of names → the places where one of them goes, as "train 0"."""
    found: dict[str, list[str]] = defaultdict(list)
    for command, about in table["commands"].items():
        for place, name in enumerate(about["words"]):
            if name:
                found[name].append(f"{command} {place}")
    return found


def _either(words: Iterator[str] | list[str]) -> str:
    return " | ".join(f'"{word}"' for word in words)


def _cases(cases: Iterator[tuple[str, str]]) -> str:
    return "\n".join(f"        {pattern}) {action} ;;" for pattern, action in cases)


def _bash_part(parts: list[str]) -> str:
    return f'if ((COMP_CWORD == 2)); then words="{" ".join(parts)}"; else command+=" ${{COMP_WORDS[2]}}" place=$((place - 1)); fi'


def _bash_value(values: str) -> str:
    joined = " && [[ $word == *,* ]] && prefix=${word%,*},"
    return f"words=${values.rstrip(',')}{joined if values.endswith(',') else ''}" if values else "return"


def _zsh_part(parts: list[str]) -> str:
    return f'if ((CURRENT == 3)); then compadd {" ".join(parts)}; return; else command+=" $words[3]" place+=-1; fi'


def _zsh_value(values: str) -> str:
    if values.endswith(","):
        return f"compset -P '*,'; compadd -a -S '' {values.rstrip(',')}"
    return "; ".join([f"compadd -a {values}"] * bool(values) + ["_files"] * (not values or values in PATHS_TOO))


def _zsh_flags(flags: dict[str, list[Any]]) -> str:
    return " ".join(shlex.quote(f"{flag}:{line}") for flag, (line, _) in flags.items())


def _fish_quoted(text: str) -> str:
    """In fish a backslash is itself before all but ' and \\ inside single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: dict[str, tuple[Callable[[Table], str], str]] = {"bash": (bash, BASH), "zsh": (zsh, ZSH), "fish": (fish, FISH)}
COMMANDS = {shell: partial(_print, shell) for shell in SHELLS}
