"""The scaling lab: accuracy against data, compute or pre-training, and cost against tokens.

Data: nested class-balanced subsets × models × seeds, each run with the same number of samples and the same recipe (no extra
regularisation on small subsets), a power law for each model, and where the lines cross. Compute: several sizes of each family,
trained from the start at several parts of the budget, against training FLOPs. Cost: FLOPs, time and memory of one ViT as patch size and
resolution change, measured and predicted, with the quadratic term. (Pre-training: `pretraining.py`.)
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

from vitral.base.device import describe_machine, pick_device, set_threads
from vitral.base.errors import ConfigError, UsageError
from vitral.base.layout import RESULT, STUDY
from vitral.base.progress import progress, say
from vitral.base.text import byte_size, percent, short, table
from vitral.build import build
from vitral.config import ModelConfig, TrainConfig
from vitral.cost.flops import attention_map_ratio, even_tokens, layer_costs, vit_flops
from vitral.cost.memory import PeakMemory
from vitral.cost.time import fit_time
from vitral.data.loader import Batch
from vitral.data.splits.open import open_data
from vitral.study.fight import plots
from vitral.study.fight.compare import Terms
from vitral.study.fight.conclude import conclude
from vitral.study.fight.conduct import conduct
from vitral.study.fight.contenders import fit_model, make_contenders, templates
from vitral.study.fight.experiment import Budget, Experiment
from vitral.study.fight.folder import Result, check_folder, check_study_folder, finish, study_folder
from vitral.study.fight.forecast import GROUP, Forecast, expect, forecast, median_seconds, time_steps
from vitral.study.fight.pretraining import check_folders, forecast_pretraining, numbers_of, run_pretraining, study_pretraining
from vitral.train.parallel import World
from vitral.train.steps import Stepper
from vitral.train.tasks import task_of

_SHARES = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0)
_DATA_MODELS = ("vit-small", "vit", "cnn", "resnet18")
_COMPUTE_MODELS = ("vit-small", "vit", "vit-large", "hybrid-small", "hybrid", "resnet18", "resnet50")
_COMPUTE_SHARES = (0.25, 1.0)
_PATCHES = (2, 4, 8, 16)
_HEADER = ("image", "patch", "tokens", "FLOPs/picture", "quadratic", "forward ms", "training ms", "predicted ms", "memory")


def scale(
    data: str,
    kind: Literal["data", "compute", "cost", "pretraining"] = "data",
    models: Sequence[str] | None = None,
    *,
    sizes: Sequence[float] | None = None,
    agree: Callable[[Forecast], None] | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Result:
    """How accuracy grows with data or compute, or cost with tokens: `vitral scale` as a call.

    - data: a name from `vitral data list` or "folder:PATH".
    - kind: "data": nested subsets of `sizes` (shares up to 1, or numbers of images); "compute": several sizes of each family;
      "cost": time and memory of one ViT as `patches` and `image_sizes` change; "pretraining": `models` learn from `sizes` of `from_data`
      with labels, then `data` from there: fine-tuned with the budget `transfer`, and as a linear probe of `shots` images per class.
    - agree: called with the forecast before anything is spent, and may raise.
    - out: the study's folder (runs/scale-KIND-DATA); the same call resumes a study in it.
    - budget, seeds, lrs, tuning_share, recipe, max_hours, batch_size …: as in `compare`; "epochs=10" lets the training grow with the data.

        result = vitral.study.scale("digits", models=["vit-small", "cnn"], sizes=[0.1, 0.3, 1], budget="samples=20000")
        print(result.table, result.values["crossings"])
    """
    folder = study_folder(out, f"scale-{kind}", data)
    tokens = {name: options.pop(name) for name in ("image_sizes", "patches") if name in options}
    before = {name: options.pop(name) for name in ("from_data", "transfer", "shots") if name in options}
    if kind == "cost":
        return _cost(data, models or ("vit",), folder, **tokens, **options)
    terms = Terms.split(options)[0]
    if kind == "pretraining":
        declared = study_pretraining(data, models, sizes=sizes, **before, **options)
        pool = terms.pool(declared.first.contenders[0].run.train)
        check_folders(declared, folder)  # a forecast takes minutes
        expect(lambda: forecast_pretraining(declared, folder, pool.parallel, terms.quiet), terms.max_hours, agree)
        return run_pretraining(declared, folder, pool)
    study = scaling(data, kind, models, sizes=sizes, **options)
    pool = terms.pool(study.contenders[0].run.train)
    check_folder(study, folder)
    expect(lambda: forecast(study, pool.parallel, terms.quiet, folder), terms.max_hours, agree)
    return conclude(conduct(study, folder, pool))


def scaling(
    data: str,
    kind: Literal["data", "compute"],
    models: Sequence[str] | None = None,
    *,
    sizes: Sequence[float] | None = None,
    **options: Any,
) -> Experiment:
    """The experiment of a study of data or compute; `sizes` are shares (< 1, or 1 for all) or numbers of images."""
    terms, settings = Terms.split(options)
    budget, recipes = Budget.parse(terms.budget), templates(data, terms.recipe, **settings)
    opened = open_data(next(iter(recipes.values())).data, image_size=terms.image_size)
    whole = len(opened.train)
    return Experiment(
        kind,
        make_contenders(models or (_DATA_MODELS if kind == "data" else _COMPUTE_MODELS), opened, recipes, lrs=terms.lrs),
        budget,
        whole,
        sizes=numbers_of(sizes or _SHARES, whole, len(opened.class_names)) if kind == "data" else (),
        shares=_COMPUTE_SHARES if kind == "compute" else (1.0,),
        **terms.held_equal(),
    )


# ---- cost ---------------------------------------------------------------------------------------------------------------------------


def _cost(
    data: str,
    models: Sequence[str],
    out: Path,
    *,
    image_sizes: Sequence[int] | None = None,
    patches: Sequence[int] = _PATCHES,
    **options: Any,
) -> Result:
    (terms, settings) = Terms.split(options)
    run = next(iter(templates(data, terms.recipe, **settings).values()))
    opened = open_data(run.data, image_size=terms.image_size)
    if len(models) > 1:
        raise UsageError("the cost study takes one model", "use --models vit")
    base = fit_model(models[0], opened.image_size, opened.channels, len(opened.class_names))
    if base.family != "vit":
        raise UsageError(f"{models[0]} has no patches to change", "use a ViT, for example --models vit")
    side = opened.image_size[0]
    configs = varied(base, image_sizes or [side, 2 * side, 4 * side], patches)
    batch = min(run.train.batch_size, 16 if terms.pool(run.train).parallel > 1 else 64)
    say(f"measuring {len(configs)} models of up to {max(config.tokens for config in configs):,} tokens, {batch} pictures at a time")
    return study_cost(configs, out, batch_size=batch, device=run.train.device, threads=run.train.threads, quiet=terms.quiet)


def varied(base: ModelConfig, sizes: Sequence[int], patches: Sequence[int]) -> list[ModelConfig]:
    """`base` with every picture size and patch size that go together."""
    made = []
    for size in sizes:
        for patch in patches:
            try:
                config = dataclasses.replace(base, image_size=(size, size), patch_size=(patch, patch), stride=None)
            except ConfigError:
                continue  # this patch does not divide this image
            if config.grid[0] > 1:
                made.append(config)
    if len({config.tokens for config in made}) < 2:
        raise UsageError(
            f"pictures of {list(sizes)} and patches of {list(patches)} give fewer than two numbers of tokens",
            "use --image-sizes 32,64 --patches 2,4,8",
        )
    return sorted(made, key=lambda config: (config.tokens, config.image_size))


def study_cost(
    configs: Sequence[ModelConfig],
    out: str | Path,
    *,
    batch_size: int = 8,
    device: str = "auto",
    threads: int | None = None,
    quiet: bool = False,
) -> Result:
    """Measure each config, fit time = fixed + a·linear + b·quadratic, draw it, and set the costs of other kinds of layers beside it."""
    if (Path(out) / STUDY).exists():  # of trainings; this one declares nothing, and is measured anew each time
        raise UsageError(f"{out} holds a study of another kind", "choose another --out")
    folder, where = check_study_folder(out, RESULT), pick_device(device)
    if threads:
        set_threads(threads)
    rows: list[dict[str, Any]] = []
    with progress("Measuring", total=len(configs), quiet=quiet) as bar:
        for config in configs:
            flops = vit_flops(config)
            rows.append(
                {
                    "image": config.image_size[0],
                    "patch": config.patch_size[0],
                    "tokens": config.tokens,
                    "flops": flops.total,
                    "quadratic": flops.attention,
                    "linear": flops.total - flops.attention,
                    **_measure(config, batch_size, where),
                    "attention_map_ratio": attention_map_ratio(config.image_size, config.grid),
                }
            )
            bar.advance(1, tokens=config.tokens)
    law = fit_time(*([entry[key] for entry in rows] for key in ("linear", "quadratic", "training_ms")))
    if law:
        for entry in rows:
            entry["predicted_ms"] = law.ms(entry["linear"], entry["quadratic"])
    base = configs[0]
    layers = {str(entry["tokens"]): [asdict(layer) for layer in layer_costs(entry["tokens"], base.width)] for entry in rows}
    even = even_tokens(base.width, base.mlp_width)
    first, last = rows[0], rows[-1]
    conclusion = (
        f"From {first['tokens']} to {last['tokens']} tokens the FLOPs grow {last['flops'] / first['flops']:.1f}-fold and the measured "
        f"training time {last['training_ms'] / first['training_ms']:.1f}-fold; the quadratic part of the FLOPs rises from "
        f"{percent(_share(first))} to {percent(_share(last))}. At width {base.width} it would equal the rest of a block at {even:,} "
        "tokens: below that a ViT's cost is mostly linear in tokens, which the usual n²·d (attention alone) does not show."
    )
    if law:
        conclusion += f" The time's fit, fixed + a·linear + b·quadratic, is off by up to {percent(law.largest_error)}."
    values = {
        "kind": "cost",
        "model": {"width": base.width, "depth": base.depth, "heads": base.heads, "mlp_width": base.mlp_width},
        "batch_size": batch_size,
        "rows": rows,
        "time": law and asdict(law),
        "layers": layers,
        "conclusion": conclusion,
        "figures": plots.draw_cost(folder, rows, f"width {base.width}, depth {base.depth}, batch {batch_size} on {where.type}"),
        "machine": describe_machine(),
    }
    return finish(folder, lambda markdown: cost_table(rows, batch_size, markdown), values)


def _measure(config: ModelConfig, batch_size: int, device: torch.device) -> dict[str, float]:
    """Milliseconds per image of looking and of learning, and the most bytes of a step, on noise."""
    torch.manual_seed(0)
    train = TrainConfig(batch_size=batch_size, compile="no")
    stepper = Stepper(build(config).to(device), task_of(train), train, device, World())
    images = torch.randn(batch_size, config.channels, *config.image_size, device=device)
    labels = torch.randint(max(1, config.classes), (batch_size,), device=device)
    batch = Batch(images, labels, None, None, torch.arange(batch_size))
    stepper.model.eval()
    with torch.no_grad(), stepper.precision():
        forward = median_seconds(lambda: stepper.logits(images), stepper.wait, least=3, group=GROUP.get(device.type, 1))
    peak = PeakMemory(device)
    training = time_steps(stepper, itertools.repeat(batch), least=3).median
    return {"forward_ms": forward / batch_size * 1000, "training_ms": training / batch_size * 1000, "memory": peak.bytes()}


def cost_table(rows: Sequence[dict[str, Any]], batch_size: int, markdown: bool = False) -> str:
    fitted = "predicted_ms" in rows[0]
    lines = [
        [
            str(entry["image"]),
            str(entry["patch"]),
            f"{entry['tokens']:,}",
            short(entry["flops"]),
            percent(_share(entry)),
            f"{entry['forward_ms']:.3g}",
            f"{entry['training_ms']:.3g}",
            *([f"{entry['predicted_ms']:.3g}"] if fitted else []),
            byte_size(entry["memory"]),
        ]
        for entry in rows
    ]
    grid = table(lines, [head for head in _HEADER if fitted or head != "predicted ms"], "r", markdown)
    memory = "memory: the GPU's, on a CPU the whole process's, at its peak"
    return f"{grid}\n\nms: of one picture, in batches of {batch_size}; quadratic: attention's share of the FLOPs; {memory}.\n"


def _share(entry: dict[str, Any]) -> float:
    return entry["quadratic"] / entry["flops"]
