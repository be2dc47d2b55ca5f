"""Print the size of the code beside its limits; with an option, list what is behind a number."""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_PARAMETERS = 8
PRIVATE_WORDS = re.compile(
    r"(?:^|_)(told|tells?|spoken|said|says|begun|going_on|several|places?|known|given|wanted|found|alike|learnt|kept|lies|stands)(?:_|$)",
    re.IGNORECASE,
)

# What is counted → the limit. None: the number is printed and never refused.
LIMITS: dict[str, int | None] = {
    "Python lines in src": 38_000,
    "Python files in src": 290,
    "dataclasses": 135,
    "public functions and classes": 950,
    "public constants": None,
    "public names used in one file only": None,
    f"functions with more than {MOST_PARAMETERS} parameters": 8,
    "private words in identifiers": 150,
    "lines of the longest --help": 60,
    "files in the repository": 1_100,
}

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def tracked(folder: str = ".") -> list[str]:
    """The files of a folder: those that git tracks, and new ones that it does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(line for line in set(lines) if (ROOT / line).is_file())


def sources() -> dict[str, str]:
    """Path → text, of every Python file in src."""
    return {path: (ROOT / path).read_text("utf-8") for path in tracked("src") if path.endswith(".py")}


def stored_names(statement: ast.stmt) -> Iterator[str]:
    """The names that a top-level statement defines, imports left out."""
    if isinstance(statement, (*Function, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for node in (node for target in targets for node in ast.walk(target)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def public_names(trees: dict[str, ast.Module], functions_and_classes: bool) -> list[tuple[str, int, str]]:
    """Path, line and name of what has no leading underscore: functions and classes, or constants."""
    return [
        (path, statement.lineno, name)
        for path, tree in trees.items()
        for statement in tree.body
        if isinstance(statement, (*Function, ast.ClassDef)) == functions_and_classes
        for name in stored_names(statement)
        if not name.startswith("_")
    ]


def names_used_once(trees: dict[str, ast.Module]) -> list[tuple[str, int, str]]:
    """Public names that no other file of src uses: candidates for an underscore. A note says where tests or docs mention one.

    A name that two files define counts as used. The entry of a verb, `run` in `cli/`, is looked up by name.
    """
    users: dict[str, set[str]] = collections.defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                users[node.id].add(path)
            elif isinstance(node, ast.Attribute):
                users[node.attr].add(path)
            elif isinstance(node, ast.alias):
                users[node.name].add(path)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                users[node.value].add(path)
    outside: dict[str, set[str]] = collections.defaultdict(set)
    for path in tracked():
        if path.endswith((".py", ".md", ".js")) and not path.startswith(("src/", "tools/")):
            for word in set(re.findall(r"[^\W\d]\w*", (ROOT / path).read_text("utf-8", "replace"))):
                outside[word].add(path.partition("/")[0])
    rows = []
    for path, line, name in public_names(trees, True) + public_names(trees, False):
        entry = name == "run" and "/cli/" in path
        if users[name] <= {path} and not entry:
            rows.append((path, line, f"{name} ({', '.join(sorted(outside[name]))})" if outside[name] else name))
    return sorted(rows)


def dataclasses(trees: dict[str, ast.Module]) -> list[tuple[str, int, str]]:
    return [
        (path, node.lineno, node.name)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def long_signatures(trees: dict[str, ast.Module]) -> list[tuple[str, int, str]]:
    """Functions with too many parameters: `self`, `*args` and `**kwargs` do not count, and Triton kernels are left out."""
    rows = []
    for path, tree in trees.items():
        methods = {id(item) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for item in node.body}
        for node in ast.walk(tree):
            if not isinstance(node, Function):
                continue
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if any(".jit" in decorator or "autotune" in decorator for decorator in decorators):
                continue
            positional = len(node.args.posonlyargs) + len(node.args.args)
            count = positional + len(node.args.kwonlyargs) - (id(node) in methods and "staticmethod" not in decorators and positional > 0)
            if count > MOST_PARAMETERS:
                rows.append((path, node.lineno, f"{node.name} ({count})"))
    return rows


def private_words(trees: dict[str, ast.Module]) -> list[tuple[str, int, str]]:
    """Every use of an identifier that contains a private word."""
    rows = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                name = node.id
            elif isinstance(node, ast.arg):
                name = node.arg
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                name = node.name
            elif isinstance(node, ast.Attribute):
                name = node.attr
            else:
                continue
            if PRIVATE_WORDS.search(name):
                rows.append((path, node.lineno, name))
    return sorted(rows)


def longest_help() -> tuple[int, str]:
    """Lines of the longest `--help` at 80 columns, and its command."""
    os.environ["COLUMNS"] = "80"
    sys.path.insert(0, str(ROOT / "src"))
    from vitral.cli import main

    def text(*words: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
            code = main([*words, "--help"])
        if code:
            raise SystemExit(f"count.py: {' '.join(words)} --help ends with {code}: {errors.getvalue().strip()}")
        return out.getvalue()

    lengths = {}
    for verb in re.findall(r"(?m)^ {2}([a-z-]+) {2,}\S", text()):
        shown = text(verb)
        lengths[verb] = shown.count("\n")
        commands = re.search(r"^usage: vitral \S+ \{([a-z,-]+)\}", shown)
        for command in commands[1].split(",") if commands else ():
            lengths[f"{verb} {command}"] = text(verb, command).count("\n")
    longest = max(lengths, key=lambda name: lengths[name])
    return lengths[longest], longest


def print_table(texts: dict[str, str], trees: dict[str, ast.Module], with_help: bool) -> dict[str, int]:
    """Print each number beside its limit; return those that exceed it."""
    counts = [
        sum(text.count("\n") for text in texts.values()),
        len(texts),
        len(dataclasses(trees)),
        len(public_names(trees, True)),
        len(public_names(trees, False)),
        len(names_used_once(trees)),
        len(long_signatures(trees)),
        len(private_words(trees)),
    ]
    longest, verb = longest_help() if with_help else (0, "not run")
    values = dict(zip(LIMITS, [*counts, longest, len(tracked())], strict=True))
    for name, value in values.items():
        limit = LIMITS[name]
        over = limit is not None and value > limit
        note = f" ({verb})" if "--help" in name else ""
        print(f"{name + note:<48} {value:>7,}   {f'at most {limit:,}' if limit else '':<16} {'over' if over else ''}".rstrip())
    return {name: value for name, value in values.items() if value > (LIMITS[name] or value)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", default="src", help="list only what is under this file or folder")
    parser.add_argument("--names", action="store_true", help="list public names used only in their own file")
    parser.add_argument("--words", action="store_true", help="list identifiers that contain a private word")
    parser.add_argument("--parameters", action="store_true", help=f"list functions with more than {MOST_PARAMETERS} parameters")
    parser.add_argument("--dataclasses", action="store_true", help="list the dataclasses")
    parser.add_argument("--public", action="store_true", help="list the public functions, classes and constants")
    parser.add_argument("--no-help", action="store_true", help="leave out the longest --help, which imports the package")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a limit is exceeded")
    options = parser.parse_args()

    texts = sources()
    trees = {path: ast.parse(text, path) for path, text in texts.items()}
    rows: list[tuple[str, int, str]] | None = None
    if options.names:
        rows = names_used_once(trees)
    elif options.words:
        rows = private_words(trees)
    elif options.parameters:
        rows = long_signatures(trees)
    elif options.dataclasses:
        rows = dataclasses(trees)
    elif options.public:
        rows = sorted(public_names(trees, True) + public_names(trees, False))
    if rows is not None:
        base = os.path.relpath(Path(options.path).resolve(), ROOT)
        rows = [row for row in rows if base in (row[0], ".") or row[0].startswith(f"{base}/")]
        for path, line, name in rows:
            print(f"{path}:{line}: {name}")
        print(f"{len(rows)} in {len({path for path, *_ in rows})} files")
        return 0

    exceeded = print_table(texts, trees, not options.no_help)
    if options.strict and exceeded:
        for name, value in exceeded.items():
            print(f"{name}: {value:,} exceeds {LIMITS[name]:,}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
