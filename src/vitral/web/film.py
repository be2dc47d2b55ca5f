"""The film of a run in the explorer: what every snapshot makes of one picture, packed for a scrubber over the training."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vitral.base.errors import VitralError
from vitral.base.picture import Picture
from vitral.draw.tiles import weights_to_grey
from vitral.model.classifier import Classifier
from vitral.run.folder import RunFolder
from vitral.study.film import moments, record
from vitral.web.pack import pack


def snapshots_of(where: str, model: Classifier) -> list[tuple[int, Path]]:
    """A run's snapshots in the order of training; none of what is no run of a transformer or kept fewer than two."""
    if not model.config.is_transformer:
        return []
    try:
        run = RunFolder.open(where)
        return moments(run) if run.settled else []
    except (VitralError, OSError):
        return []


def pack_film(where: str, model: Classifier, picture: Picture, snapshots: list[tuple[int, Path]], compression: int = 1) -> bytes:
    """Everything that the film of the run would show of this picture."""
    reel = record(RunFolder.open(where), snapshots, [picture], model)
    parts = reel.parts
    sections: dict[str, np.ndarray | bytes] = {"attention": parts["attention"][:, 0], "distance": parts["distance"]}
    if "lens" in parts:
        sections |= {"lens": parts["lens"][:, 0], "classes": parts["classes"][:, 0]}
    if "positions" in parts:
        values = parts["positions"]  # (F, h, w, h, w)
        sections["positions"] = np.rint(values.reshape(len(values), -1) * 127).astype(np.int8)
    tiles = parts["filters"] if parts["filters"].ndim == 5 else parts["filters"][..., None].repeat(3, axis=-1)  # (F, n, ph, pw, 3)
    sections["filters"] = weights_to_grey(tiles, leading=2)
    header = {
        "steps": list(reel.steps),
        "class": reel.class_names[0] if reel.class_names else None,
        "curve": None if reel.curve is None else [reel.curve[0].tolist(), [round(float(value), 5) for value in reel.curve[1]]],
        "label": reel.curve_label,
        "notes": list(reel.notes),
    }
    return pack(header, sections, compression)
