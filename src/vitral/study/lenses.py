"""Lenses of pictures as figures, and a lens trained on a data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from vitral.base.picture import Picture
from vitral.base.progress import say, track
from vitral.base.text import percent
from vitral.config import DataConfig
from vitral.data.images.preprocess import Preprocess
from vitral.data.splits.open import open_split
from vitral.draw.provenance import save_figure
from vitral.look.contributions import contributions
from vitral.look.describe import about_model, about_picture, stems
from vitral.look.lens import TrainedLens, fit_lens, lens
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.train.evaluate import evaluation_loader

BATCH = 16
_LENS = "lens.safetensors"


def fit_on(model: Classifier, data: str, out: str | Path, most: int = 1000) -> TrainedLens:
    """A lens trained on up to `most` training pictures of a data set, written into `out`."""
    split = open_split(DataConfig(name=data, on_bad_image="skip"), Preprocess.of(model), "train")
    split = split.balanced_subset(min(most, len(split)), seed=0)
    loader = evaluation_loader(split, split.preprocess, next(model.parameters()).device, BATCH)
    some = max(1, min(BATCH, len(split) // 5))  # so that, however few there are, a fifth can be kept apart

    def batches() -> Iterator[torch.Tensor]:
        for batch in track(loader.epoch(0), "Fitting the lens", total=len(loader)):
            yield from batch.images.split(some)

    fitted = fit_lens(model, batches(), data)
    if "agreement" in fitted.facts:
        plain, trained = (sum(fitted.facts["agreement"][name]) / len(fitted.facts["agreement"][name]) for name in ("plain", "trained"))
        judged = fitted.facts["judged_on"]
        text = f"plain {percent(plain)}, trained {percent(trained)} (mean of blocks, {judged} pictures kept apart)"
        say(f"how often the answer after a block is the final one: {text}")
    else:
        say("note: too few pictures to keep some apart: nobody knows whether this lens is better than the plain one")
    fitted.save(Path(out) / _LENS)
    return fitted


def read_lenses(
    model: Classifier,
    pictures: Sequence[Picture],
    out: str | Path,
    *,
    trained: TrainedLens | None = None,
    target: int | str | None = None,
    top: int = 3,
    command: str = "",
) -> list[dict[str, Any]]:
    """For each picture the lens and the parts of the logit as figures with numbers; what they say, as plain values."""
    about, out = about_model(model, command), Path(out)
    rows = []
    for picture, name in zip(pictures, stems(pictures), strict=True):
        tape = watch(model, [picture])
        read = lens(tape, target=target, trained=trained)
        about_this = {**about, "picture": about_picture(picture), **read.to_dict(top)}
        files = save_figure(
            read.draw(), out / f"{name}-lens", read.numbers(), about_this, f"{name}: the head read after every block", ("png",)
        )
        parts: dict[str, Any] = {}
        try:
            sums = contributions(tape, target=target)
        except ValueError as error:
            say(f"note: {error}")
        else:
            title = f"{name}: what each head and MLP adds to the logit of {sums.name}"
            files += save_figure(sums.draw(), out / f"{name}-parts", sums.numbers(), about_this, title, ("png",))
            parts = {
                "logit": sums.logit,
                "embedding": sums.embedding,
                "rest": sums.rest,
                "heads": sums.heads.tolist(),
                "mlp": sums.mlp.tolist(),
            }
        shown = [path.as_posix() for path in files if path.suffix == ".png"]
        rows.append({"picture": picture.source, **read.to_dict(top), "parts": parts, "files": shown})
    return rows
