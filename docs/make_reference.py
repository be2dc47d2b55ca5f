"""Writes docs/reference/ from the code: `python docs/make_reference.py`. A test compares the pages with the code."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import vitral
from vitral.base import errors
from vitral.cli import VERBS
from vitral.cli.completion import commands
from vitral.cli.parsing import usage
from vitral.config import RunConfig, formats
from vitral.config.flags import Flag, documents
from vitral.presets.runs import RUNS

FOLDER = Path(__file__).parent / "reference"
MADE = "<!-- Written by docs/make_reference.py from the code: change it there. -->"

CLASSES = {
    "vitral.model.classifier.Classifier": ("features", "with_head", "summary"),
    "vitral.model.vit.ViT": ("forward", "features", "pooled", "with_head", "summary", "tape_names"),
    "vitral.model.tape.Tape": ("attention", "gradient", "names"),
    "vitral.draw.heatmap.Heatmap": ("overlay", "image", "figure", "save", "peak"),
    "vitral.base.origin.Origin": ("assumptions", "class_name"),
    "vitral.base.picture.Picture": (),
    "vitral.train.scores.Evaluation": ("to_dict",),
    "vitral.train.fit.Run": ("test",),
    "vitral.study.fight.folder.Result": ("rows", "conclusion", "failed"),
}
"""What the functions give back, with the methods worth naming."""


EXAMPLES = {
    "vitral.adopt": """
import timm

adopted = vitral.adopt(timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=5))
print(adopted.origin.parity["logits"])  # largest difference from the source, relative to its largest value
""",
    "vitral.create": """
fresh = vitral.create("ti/16", classes=5, image_size=64, registers=4)
print(fresh.summary())
""",
    "vitral.evaluate": """
scores = vitral.evaluate(model, "digits")
print(scores.top1, scores.calibration["error"])
""",
    "vitral.explore": 'vitral.explore(model, ["runs/demo/digit.png"]).save("page.html")',
    "vitral.export": 'path = vitral.export(fresh, "for-timm", format="timm")',
    "vitral.fit": """
run = vitral.fit(vitral.presets.run("digits", epochs=1, seed=1), out="runs/one-epoch", quiet=True)
print(run.path, run.test["accuracy"])
""",
    "vitral.load": """
tiny = vitral.load("vit_tiny.safetensors", preprocess="half", classes=5, image_size=96)
print(tiny.origin.changes)
""",
    "vitral.models": 'print(vitral.models()["b/16"]["parameters"])',
    "vitral.open_picture": """
picture = vitral.open_picture("runs/demo/digit.png", model)
print(picture.tensor.shape, picture.box)
""",
    "vitral.predict": """
(ranking,) = vitral.predict(model, ["runs/demo/digit.png"], top=3)
name, probability = ranking[0]
""",
    "vitral.save": 'vitral.save(fresh, "saved")  # vitral.load("saved") has it again',
    "vitral.transform": """
from PIL import Image

tensor = vitral.transform(model)(Image.open("runs/demo/digit.png"))  # (C, H, W)
""",
    "vitral.watch": """
tape = vitral.watch(model, "runs/demo/digit.png")
print(tape.attention(0).shape, tape.grid)
""",
    "vitral.look.attention": "vitral.look.attention(tape, block=2, head=1)",
    "vitral.look.rollout": 'vitral.look.rollout(tape, heads="max", discard=0.5).save("rollout.png")',
    "vitral.look.gradient_rollout": "vitral.look.gradient_rollout(tape, target=3)",
    "vitral.look.relevance": "vitral.look.relevance(tape, target=3, lower=True)  # what speaks against it",
    "vitral.look.legrad": "vitral.look.legrad(tape, target=3)",
    "vitral.look.gradcam": "vitral.look.gradcam(tape, block=1)",
    "vitral.look.integrated_gradients": 'vitral.look.integrated_gradients(tape, baseline="white")',
    "vitral.look.occlusion": "vitral.look.occlusion(tape, size=1, exact=True)",
    "vitral.look.rise": "vitral.look.rise(tape, masks=64, seed=1)",
    "vitral.look.similarity": "vitral.look.similarity(tape, start=(1, 2), block=1)",
    "vitral.look.norms": "vitral.look.norms(tape, block=-1)",
    "vitral.look.attention_matrix": 'vitral.look.attention_matrix(tape, block=1).draw().savefig("matrix.png")',
    "vitral.look.distance": "vitral.look.distance(tape).numbers()",
    "vitral.look.entropy": "vitral.look.entropy(tape).numbers()",
    "vitral.look.ablate": "print(vitral.look.ablate(tape).heads)  # (blocks, heads): change of the score",
    "vitral.look.contributions": "vitral.look.contributions(tape, target=3).numbers()",
    "vitral.look.lens": "vitral.look.lens(tape).numbers()",
    "vitral.look.health": "vitral.look.health(tape).numbers()",
    "vitral.look.token_colours": "vitral.look.token_colours(tape, block=-1).numbers()",
    "vitral.look.position_similarity": "vitral.look.position_similarity(model).numbers()",
    "vitral.look.filters": 'vitral.look.filters(model, count=8).draw().savefig("filters.png")',
    "vitral.look.watch_rollout": '(heat,) = vitral.look.watch_rollout(model, ["runs/demo/digit.png"])',
    "vitral.look.watch_heads": 'numbers = vitral.look.watch_heads(model, ["runs/demo/digit.png"])',
    "vitral.study.compare": """
short = {"budget": "samples=256", "seeds": 2, "lrs": [3e-3], "parallel": 1, "quiet": True}
result = vitral.study.compare("digits", ["vit-small", "cnn"], **short, out="runs/fight")
print(result)
""",
    "vitral.study.scale": 'vitral.study.scale("digits", "data", ["vit-small"], sizes=[0.1, 1], **short, out="runs/scale")',
    "vitral.study.probe": 'vitral.study.probe(model, "digits", shots=[1, None], quiet=True)',
    "Classifier": 'print(isinstance(model, vitral.Classifier), isinstance(vitral.create("cnn"), vitral.Classifier))',
    "ViT": """
maps = model.features(tape.images, blocks=[0, 3])  # each (B, D, h, w)
five = model.with_head(classes=5)
print(model)
""",
    "Tape": """
whole = vitral.watch(model, "runs/demo/digit.png", keep=["blocks.*.output"], gradients=True)
slope = whole.gradient("blocks.2.output", target=3)  # (B, T, D)
""",
    "Heatmap": """
heat = vitral.look.relevance(tape)
print(heat.grid.shape, heat.peak, heat.target)
heat.overlay().save("where.png")
""",
    "Origin": "print(model.origin.assumptions(), model.origin.class_name(3))",
    "Picture": "print(picture.tensor.shape)",
    "Evaluation": "print(scores.to_dict().keys())",
    "Run": 'print(run.metrics[-1]["loss"], run.model.config.depth)',
    "Result": 'print(result.rows[0]["mean"], result.conclusion)',
}
"""One for every entry; from top to bottom they are one session, which a test runs. What `model` is stands above the first."""


def cli_page() -> str:
    parts = [
        f"{MADE}\n\n# The command line\n\n`vitral VERB --help` shows the common flags, `--help-all` all of them. "
        "Exit codes: 0 done, 1 failed, 2 used wrongly.",
        verbs(),
    ]
    for verb, line in VERBS.items():
        parts.append(f"## {verb}\n\n{line[0].upper()}{line[1:]}.")
        if verb in ("train", "plan", "pretrain"):
            parts.append(
                "The defaults below are those of the settings; each named run brings its own, and `--help` after its name shows them."
            )
        for command, (flags, examples) in commands(verb).items():
            parts += [f"### {verb} {command}"] if command else []
            parts.append(fenced(f"{usage(f'vitral {verb} {command}'.strip(), flags)}\n\n{examples.strip()}"))
            parts += [flag_table(flags)] if flags else []
    return "\n\n".join(parts) + "\n"


def verbs() -> str:
    return table(("verb", "what it does"), [(f"[{verb}](#{verb})", line) for verb, line in VERBS.items()])


def flag_table(flags: list[Flag]) -> str:
    rows = [
        (f"`{flag.names[0]}`", "" if flag.positional or flag.default is dataclasses.MISSING else shown(flag.default), flag.text)
        for flag in flags
    ]
    return table(("flag", "default", "what it does"), rows)


def texts(kind: type) -> dict[str, str]:
    """The docstring under each field, of the class and of those it extends."""
    return {
        name: text for base in reversed(kind.__mro__[:-1]) if base.__module__.startswith("vitral") for name, text in documents(base).items()
    }


def config_page() -> str:
    from vitral.config import DataConfig, ModelConfig, TrainConfig

    parts = [
        f"{MADE}\n\n# Settings\n\nFour frozen dataclasses in `vitral.config`, checked when they are made, to and from JSON. On the "
        "command line, `vitral train RUN --FLAG` sets the common ones and `--set name=value` all others."
    ]
    for kind in (RunConfig, ModelConfig, DataConfig, TrainConfig):
        rows = [(f"`{f.name}`", in_cell(f.type), default_of(f), texts(kind).get(f.name, "")) for f in dataclasses.fields(kind)]
        parts.append(f"## {kind.__name__}\n\n{inspect.getdoc(kind)}\n\n" + table(("field", "type", "default", "meaning"), rows))
    parts.append("## Named models\n\n`vitral.create(name)`, `vitral train RUN --model NAME`.\n\n" + model_table())
    rows = [
        (
            f"`{name}`",
            run.data.name,
            f"{run.model.family}, {by(run.model.image_size) if run.model.image_size else 'size of the data'}",
            f"{run.train.epochs:g}",
            run.train.optimizer,
            run.weights or "–",
        )
        for name, run in RUNS.items()
    ]
    parts.append("## Named runs\n\n`vitral train NAME`.\n\n" + table(("run", "data", "model", "epochs", "optimizer", "starts from"), rows))
    return "\n\n".join(parts) + "\n"


def model_table() -> str:
    rows = [
        (
            f"`{name}`",
            facts["family"],
            f"{facts['parameters']:,}",
            by(facts["image_size"]),
            *(size(facts[key]) for key in ("patch_size", "width", "depth", "heads")),
        )
        for name, facts in vitral.models().items()
    ]
    return table(("name", "family", "parameters", "picture", "patch", "width", "depth", "heads"), rows)


def default_of(field: dataclasses.Field[Any]) -> str:
    return shown(field.default) if field.default is not dataclasses.MISSING else "its own defaults"


def python_page() -> str:
    from vitral import look, study

    parts = [
        f"{MADE}\n\n# The Python surface\n\n`import vitral` gives these names; each is loaded when it is first used. "
        "The examples are one session, from top to bottom, in a folder where `vitral demo` has run:",
        fenced('import vitral\n\nmodel = vitral.load("runs/demo")', "python"),
        "## Functions",
        *(function_entry(f"vitral.{name}", thing) for name in vitral.__all__ if inspect.isfunction(thing := getattr(vitral, name))),
        "## Looking inside\n\nMethods that make a heat map of one picture:",
        *(function_entry(f"vitral.look.{name}", method) for name, method in look.METHODS.items()),
        "Methods that make other numbers, with `.numbers()` and `.draw()`:",
        *(function_entry(f"vitral.look.{name}", method) for name, method in look.MEASURES.items()),
        "Whole sets of pictures, without storing attention:",
        *(function_entry(f"vitral.look.{method.__name__}", method) for method in (look.watch_rollout, look.watch_heads)),
        "## Studies\n\nWhat the verbs do, as calls; each returns a `vitral.study.Result`.",
        *(function_entry(f"vitral.study.{call.__name__}", call) for call in (study.compare, study.scale, study.probe)),
        "## What comes back",
        *(class_entry(path, methods) for path, methods in CLASSES.items()),
        "## Errors\n\nAll are `vitral.VitralError`, with `.message`, `.hint` and `.exit_code`.",
        error_table(),
        "## Settings\n\n`vitral.ModelConfig`, `vitral.DataConfig`, `vitral.TrainConfig`, `vitral.RunConfig`: [settings](config.md). "
        "`vitral.presets.run(name, **changes)` and `vitral.presets.model(name, **changes)` give the named ones.",
    ]
    return "\n\n".join(parts) + "\n"


def function_entry(path: str, function: Callable[..., Any]) -> str:
    example = EXAMPLES.get(path, f"{path}(tape)")
    return f"### {path}\n\n{fenced(signature(path, function))}\n\n{described(function)}\n\n{fenced(example, 'python')}"


def class_entry(path: str, methods: tuple[str, ...]) -> str:
    module, _, name = path.rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    lines = [f"### {name}", described(kind)]
    if hasattr(kind, "__dataclass_fields__"):
        rows = [(f"`{f.name}`", in_cell(f.type), texts(kind).get(f.name, "")) for f in dataclasses.fields(kind)]
        lines.append(table(("field", "type", "what"), rows))
    for method in methods:
        member = inspect.getattr_static(kind, method)
        if isinstance(member, property):
            lines.append(f"- `.{method}` – {first_line(member)}".rstrip(" –"))
        else:
            lines.append(f"- `.{signature(method, member, skip=1, wrap=False)}` – {first_line(member)}".rstrip(" –"))
    return "\n\n".join([*lines, fenced(EXAMPLES[name], "python")])


def error_table() -> str:
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.VitralError)]
    rows = [(f"`{kind.__name__}`", also(kind), str(kind.exit_code), first_line(kind)) for kind in kinds]
    return table(("error", "is also", "exit code", "when"), rows)


def written(annotation: Any) -> str:
    """A type as it stands in the source, number formats written out."""
    return re.sub(r"\b\w*Precision\b", lambda match: str(getattr(formats, match[0])).removeprefix("typing."), str(annotation))


def in_cell(annotation: Any) -> str:
    return f"`{written(annotation)}`".replace("|", "\\|")


def also(kind: type) -> str:
    """The built-ins that catch it, most special first."""
    found = [base for base in kind.__mro__ if base.__module__ == "builtins" and base not in (object, BaseException)]
    special = [base for base in found if not any(other is not base and issubclass(other, base) for other in found)]
    return ", ".join(f"`{base.__name__}`" for base in special)


def signature(name: str, function: Callable[..., Any], skip: int = 0, wrap: bool = True) -> str:
    found = inspect.signature(function)
    words, starred = [], False
    for parameter in list(found.parameters.values())[skip:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words, starred = [*words, "*"], True
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}".replace("'", '"')
        star = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        words.append(f"{star}{parameter.name}: {written(parameter.annotation)}{default}")
    result = f" -> {found.return_annotation}"
    one = f"{name}({', '.join(words)}){result}"
    return one if len(one) <= 120 or not wrap else f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){result}"


def described(thing: Any) -> str:
    """A docstring; what is laid out in columns or indented stays so."""
    text = (inspect.getdoc(thing) or "").replace("\n    ", "\n\t").split("\n\n")
    return "\n\n".join(fenced(part.replace("\t", "    ")) if re.search(r"\S {2,}\S|^\t", part) else part for part in text)


def first_line(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


def table(head: tuple[str, ...], rows: list[Any]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def fenced(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.strip()}\n```"


def shown(value: Any) -> str:
    if value == () or value == "":
        return ""
    return f"`{' '.join(map(str, value)) if isinstance(value, tuple) else value}`"


def by(pair: tuple[int, int]) -> str:
    return f"{pair[0]}×{pair[1]}"


def size(value: Any) -> str:
    return "–" if value is None else by(value) if isinstance(value, tuple) else str(value)


PAGES = {"cli.md": cli_page, "python.md": python_page, "config.md": config_page}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
        print(FOLDER / name)
