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
        "pretrain": "learn from pictures without labels",
        "plan": "what a training will cost, before it is spent",
        "data": "list, fetch, show and check data sets",
    },
    "bring a model and use it": {
        "weights": "inspect, convert and list weights of any origin",
        "predict": "the most probable classes of pictures",
        "embed": "feature vectors of a folder: written, mapped, searched for near-duplicates",
        "quantise": "export to int8 ONNX and measure how many answers agree with fp32",
    },
    "look inside": {
        "look": "heat maps of what a model attends to, one sheet per picture",
        "figures": "every figure of the ViT literature, from any model",
        "explore": "a page in the browser that shows a model at work",
        "lens": "what the head says after every block, and what each head adds",
        "film": "how a model came to be, from the snapshots of its training",
    },
    "trust what comes out": {
        "eval": "loss, accuracy, confusion and calibration of a model on a data set",
        "audit": "which explanation of a model can be trusted",
        "verify": "is every byte of a run or a study still what was written?",
    },
    "compare": {
        "compare": "several models under one budget: a fair fight",
        "scale": "accuracy against data and compute; cost against tokens",
        "probe": "linear probe and kNN on frozen features; kept as a model",
        "bench": "how fast a ViT is here, beside other libraries' own",
        "diff": "which settings, data, versions, curves and answers of runs differ",
    },
    "tidy up": {
        "runs": "what has been trained: listed, compared, cleaned up",
        "report": "a run or a study as one HTML page",
        "completion": "verbs, flags and names at the press of Tab, in bash, zsh and fish",
    },
}
"""What one wants to do → its verbs, each a file of this folder."""

VERBS = {verb: line for verbs in GROUPS.values() for verb, line in verbs.items()}


def main(argv: list[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if "#" in arguments:  # zsh passes on the comment of a pasted line
        del arguments[arguments.index("#") :]
    debug = "--debug" in arguments
    if debug:
        arguments.remove("--debug")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name that is no UTF-8 is told, not died of
    try:
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            print(usage())
            return 0
        if arguments[0] in ("-V", "--version"):
            print(f"vitral {__version__}")
            return 0
        if arguments[0] not in VERBS:
            raise one_of("verb", arguments[0], VERBS)
        wait_passively()
        return importlib.import_module(f"vitral.cli.{arguments[0]}").run(arguments[1:])
    except SystemExit as stop:  # tyro leaves this way after --help
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
        told = refused_by_apple(error) or f"{type(error).__name__}: {first}: run again with --debug for the traceback"
        print(f"vitral: {told}", file=sys.stderr)
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
            "usage: vitral VERB … [--debug]     vitral VERB --help shows examples",
            *groups,
            "Try: vitral demo",
        ]
    )
