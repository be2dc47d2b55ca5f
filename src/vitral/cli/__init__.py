"""The command line: one table, verb → file. Parsing and printing only; the work is done elsewhere."""

from __future__ import annotations

import importlib
import io
import os
import sys
import textwrap

from vitral.base.device import refused_by_apple, wait_passively
from vitral.base.errors import VitralError, one_of
from vitral.base.text import clean, table
from vitral.base.version import __version__

GROUPS: dict[str, dict[str, str]] = {
    "train": {
        "demo": "train a small ViT on digits, look inside it, write a report",
        "train": "train or fine-tune a model",
        "pretrain": "learn from images without labels",
        "plan": "estimate time and memory of a run",
        "data": "list, fetch, show and check data sets",
    },
    "bring a model and use it": {
        "weights": "inspect, convert and list weights of any origin",
        "predict": "rank the classes of images",
        "embed": "write the feature vectors of a folder, find near-duplicates",
        "quantise": "export to int8 ONNX and measure agreement with fp32",
    },
    "look inside": {
        "look": "draw heat maps of what a model attends to",
        "figures": "draw every figure of the ViT literature from any model",
        "explore": "open a page in the browser that shows a model at work",
        "lens": "read the head after every block, and what each head adds",
        "film": "animate training from snapshots",
    },
    "trust what comes out": {
        "eval": "measure accuracy, confusion and calibration on a data set",
        "audit": "test which explanations of a model can be trusted",
        "verify": "check that no file of a run or a study has changed",
    },
    "compare": {
        "compare": "compare several models under one budget",
        "scale": "measure accuracy against data and compute, cost against tokens",
        "probe": "fit a linear probe and kNN on frozen features",
        "bench": "measure how fast a ViT is on this machine",
        "diff": "list what differs between runs: settings, data, curves, answers",
    },
    "tidy up": {
        "runs": "list, compare and clean up trained runs",
        "report": "write a run or a study as one HTML page",
        "completion": "complete verbs, flags and names in bash, zsh and fish",
    },
}
"""What a user wants to do → its verbs, each a file of this folder."""

VERBS = {verb: line for verbs in GROUPS.values() for verb, line in verbs.items()}


def main(argv: list[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if "#" in arguments:  # zsh passes on the comment of a pasted line
        del arguments[arguments.index("#") :]
    debug = "--debug" in arguments
    if debug:
        arguments.remove("--debug")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name that is not UTF-8 is printed, not fatal
    try:
        if not arguments or arguments[0] in ("-h", "--help", "--help-all", "help"):
            print(usage())
            return 0
        if arguments[0] in ("-V", "--version"):
            print(f"vitral {__version__}")
            return 0
        if arguments[0] not in VERBS:
            raise one_of("verb", arguments[0], VERBS)
        wait_passively()
        return importlib.import_module(f"vitral.cli.{arguments[0]}").run(arguments[1:])
    except SystemExit as stop:  # after --help
        return stop.code if isinstance(stop.code, int) else 0
    except VitralError as error:
        if debug:
            raise
        print(f"vitral: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("vitral: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) went away; that is not our failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            raise
        first = clean((str(error).splitlines() or [""])[0])
        message = refused_by_apple(error) or f"{type(error).__name__}: {first}: run again with --debug for the traceback"
        print(f"vitral: {message}", file=sys.stderr)
        return 1


def usage() -> str:
    width = max(map(len, VERBS))
    groups = (
        f"To {what}\n" + textwrap.indent(table([(verb.ljust(width), line) for verb, line in verbs.items()]), "  ")
        for what, verbs in GROUPS.items()
    )
    return "\n\n".join(
        [
            "vitral: the workbench for Vision Transformers",
            "usage: vitral VERB … [--debug]     vitral VERB --help",
            *groups,
            "Try: vitral demo",
        ]
    )
