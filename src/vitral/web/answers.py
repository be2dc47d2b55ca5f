"""What the page may ask about an image in a model: one table, from which the server's routes, the exported page and the cache come.

A name of the table ends an address: `models/0/pictures/KEY/map?method=gradcam&target=3`. The server answers under it, and an exported
page stores the same answer under it. Every answer is packed (web/pack.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np
import torch

from vitral.base.errors import UsageError
from vitral.base.numbers import to_double, to_numpy
from vitral.base.progress import track
from vitral.look.method import RECORDS
from vitral.look.switch_off import DRAWS, Off, ablate, check_off, edits_for, prune_heads, rollout_without
from vitral.look.watch import watch
from vitral.model.tape import Edit
from vitral.web.depth import pack_depth, pack_features
from vitral.web.film import pack_film
from vitral.web.pack import SERVED, Packing, pack
from vitral.web.server.limits import Refusal
from vitral.web.story import measure_story, shorten
from vitral.web.trace import LISTED, methods_of, pack_trace, probabilities, rounded

if TYPE_CHECKING:
    from vitral.web.session import Session

CLASSES = 3
"""How many of the most probable classes the class-wise methods of an exported page are computed for."""
_COPIES = 16
"""Copies of the image in one pass while parts are switched off."""
FEWEST = 2
"""A share of fewer images is none."""

ALL_ON = Off()


@dataclass(frozen=True)
class Question:
    """An entry of the table, about one image in one model, with every option that changes the answer: the key of the cache."""

    what: str
    model: int
    picture: str
    method: str | None = None
    target: int | None = None
    """A class; None: the predicted one."""
    off: Off = ALL_ON
    packing: Packing = SERVED

    @property
    def address(self) -> str:
        """`models/0/pictures/KEY/map?method=gradcam&target=3`, the options in the order of the alphabet. What is off has no address."""
        options = {name: value for name in ("method", "target") if (value := getattr(self, name)) is not None}
        return f"models/{self.model}/pictures/{self.picture}/{self.what}" + (f"?{urlencode(options)}" if options else "")

    @property
    def edits(self) -> dict[str, Edit] | None:
        return edits_for(self.off) or None


def parse_off(text: str) -> Off:
    """Parts as an address has them: h3.1 (head 1 of block 3), b5 (block 5), p17 (patch 17)."""
    parts: dict[str, set[tuple[int, ...]]] = {"h": set(), "b": set(), "p": set()}
    for part in filter(None, text.split(",")):
        if not re.fullmatch(r"h\d{1,4}\.\d{1,4}|[bp]\d{1,6}", part, re.ASCII):
            raise UsageError(f"{part[:20]!r} is no part that can be switched off", "name parts as in h3.1,b5,p17")
        parts[part[0]].add(tuple(int(number) for number in part[1:].split(".")))
    heads = tuple((block, head) for block, head in sorted(parts["h"]))
    blocks, patches = (tuple(index for (index,) in sorted(parts[kind])) for kind in "bp")
    return Off(heads, blocks, blocks, patches)


def check_question(session: Session, question: Question) -> None:
    """Refuse classes, methods and parts that the model does not have."""
    model = session.model(question.model)
    classes = model.config.classes
    if question.target is not None and not question.target < max(1, classes):
        raise Refusal(422, f"class {question.target} does not exist", f"this model has classes 0 to {classes - 1}")
    if question.what == "map" and question.method not in methods_of(model):
        raise Refusal(422, f"this model has no method {question.method!r}", f"use one of {', '.join(methods_of(model))}")
    check_off(model, question.off)


# How each answer is made


def _trace(session: Session, asked: Question) -> bytes:
    """The image as the model sees it, its logits and all attention of one pass (see vitral.web.trace)."""
    return pack_trace(session.model(asked.model), session.picture_without(asked), session.limits, asked.packing, asked.edits)


def _story(session: Session, asked: Question) -> bytes:
    """The numbers behind the steps from patches to a class (see vitral.web.story)."""
    return pack(*measure_story(session.model(asked.model), session.picture(asked.model, asked.picture)), asked.packing.compression)


def _map(session: Session, asked: Question) -> bytes:
    """One method's map for one class."""
    assert asked.method is not None
    tape = watch(session.model(asked.model), session.picture_without(asked), keep=["logits"], edits=asked.edits)
    heat = RECORDS[asked.method].function(tape, target=asked.target)
    header = {"method": heat.method, "target": heat.target, "note": heat.note, "unit": heat.unit, "signed": heat.signed}
    return pack({**header, "grid": list(heat.grid.shape)}, {"values": heat.grid.astype(np.float32)}, asked.packing.compression)


def _depth(session: Session, asked: Question) -> bytes:
    """What the model's head says after every block, of the image and of each patch."""
    model, picture = session.model(asked.model), session.picture_without(asked)
    return pack_depth(model, picture, asked.target, asked.edits, asked.packing.compression)


def _features(session: Session, asked: Question) -> bytes:
    """The patches' tokens after every block."""
    most = asked.packing.features or session.limits.features
    return pack_features(session.model(asked.model), session.picture_without(asked), most, asked.edits, asked.packing.compression)


def _film(session: Session, asked: Question) -> bytes:
    """What every snapshot of the run made of the image."""
    model, snapshots = session.model(asked.model), session.films[asked.model]
    if not snapshots:
        raise Refusal(422, "this model kept no snapshots of its training", "train with some: vitral train RUN --snapshots 24")
    picture = session.picture(asked.model, asked.picture)
    return pack_film(session.sources[asked.model], model, picture, snapshots, asked.packing.compression)


def _importance(session: Session, asked: Question) -> bytes:
    """Every head switched off once, then one after another, the least important first.

    The accuracy along the way is that on the run's labelled images; without them, the agreement with the model's answers on the images
    at hand.
    """
    model, picture = session.model(asked.model), session.picture(asked.model, asked.picture)
    tape = watch(model, picture, keep=["logits"])
    heads = ablate(tape, target=asked.target)
    labelled = session.labelled(asked.model)
    images, labels = labelled or (None, [])
    at_hand = [entry["picture"] for entry in session.initial]
    if labelled is None and len(at_hand) >= FEWEST and model.config.classes > 1 and not model.origin.multi_label:
        images = torch.stack([session.picture(asked.model, key).tensor for key in at_hand])
    pruning = prune_heads(tape, heads, images=images, labels=labels)
    header = {
        "heads": rounded(heads.heads),
        "parts": rounded(heads.parts),
        "baseline": heads.whole,
        "target": heads.target,
        "unit": heads.unit,
        "order": [f"h{block}.{head}" for block, head in pruning.order],
        "counts": pruning.counts.tolist(),
        "confidence": [round(value, 5) for value in pruning.confidence.tolist()],
        "random": [round(value, 5) for value in pruning.random.tolist()],
        "draws": DRAWS,
        "share": None if pruning.share is None else [round(value, 4) for value in pruning.share.tolist()],
        "half_point": pruning.half,
        "n_images": 0 if images is None else len(images),
        "labelled": labelled is not None,
    }
    return pack(header, {}, asked.packing.compression)


def _without_each(session: Session, asked: Question) -> bytes:
    """Answer and rollout with every head off and every block off, one at a time: what an exported page knows of switching off.

    parts: h3.1, b5 …; classes (n, K or fewer) and probabilities of the same shape; rollouts (n, h, w).
    """
    model = session.model(asked.model)
    depth = model.config.depth
    parts = [f"h{block}.{head}" for block in range(depth) for head in range(model.config.heads)] + [f"b{block}" for block in range(depth)]
    image = session.picture(asked.model, asked.picture).tensor.to(next(model.parameters()).device)
    before = np.argsort(-to_numpy(to_double(watch(model, image[None], keep=["logits"]).logits[0])))[:LISTED].tolist()
    classes, shares, rollouts = [], [], []
    for begin in track(range(0, len(parts), _COPIES), "Switching off heads and blocks"):
        logits, maps = rollout_without(model, image, [parse_off(part) for part in parts[begin : begin + _COPIES]])
        rollouts.append(maps)
        for row in logits:
            probability = probabilities(row, model.origin.multi_label)
            listed = list(dict.fromkeys([*before, *np.argsort(-probability).tolist()]))[: 2 * LISTED]
            classes.append(listed)
            shares.append(probability[listed])
    sections: dict[str, np.ndarray | bytes] = {
        "classes": np.array(classes, np.uint16),
        "probabilities": np.array(shares, np.float32),
        "rollouts": shorten(np.concatenate(rollouts)),
    }
    return pack({"parts": parts}, sections, asked.packing.compression)


# When an answer fits, and what an exported page holds of it


def _always(_: Session, __: int) -> bool:
    return True


def _transformer(session: Session, model: int) -> bool:
    return session.model(model).config.is_transformer


def _classifying_transformer(session: Session, model: int) -> bool:
    return _transformer(session, model) and session.model(model).config.classes > 0


def _filmed(session: Session, model: int) -> bool:
    return bool(session.films[model])


def _once(_: Session, __: int, ___: str) -> list[dict[str, Any]]:
    return [{}]


def _each_map(session: Session, model: int, key: str) -> list[dict[str, Any]]:
    """Every method for the most probable classes. Occlusion runs the model once a patch: only for the first class."""
    classifier = session.model(model)
    tape = watch(classifier, session.picture(model, key), keep=["logits"])
    top = to_numpy(tape.logits[0].float()).argsort()[::-1][:CLASSES].tolist() if classifier.config.classes else []
    chosen: list[dict[str, Any]] = []
    for method in methods_of(classifier):
        targets = [None] if not RECORDS[method].explains else top[:1] if method == "occlusion" else top
        chosen += [{"method": method, "target": target} for target in targets]
    return chosen


@dataclass(frozen=True)
class Answer:
    """An entry of the table."""

    make: Callable[[Session, Question], bytes]
    options: tuple[str, ...] = ()
    """Of method, target and off, those that change the answer."""
    slow: Callable[[Question], bool] = lambda _: False
    """Takes many passes, so that quick answers are let through."""
    fits: Callable[[Session, int], bool] = _always
    """Whether an exported page has it of a model."""
    exported: Callable[[Session, int, str], list[dict[str, Any]]] = _once
    """The options for which an exported page holds it."""


ANSWERS: dict[str, Answer] = {
    "trace": Answer(_trace, ("off",)),
    "story": Answer(_story, slow=lambda _: True, fits=_transformer),
    "map": Answer(_map, ("method", "target", "off"), slow=lambda asked: asked.method == "occlusion", exported=_each_map),
    "depth": Answer(_depth, ("target", "off"), fits=_classifying_transformer),
    "features": Answer(_features, ("off",)),
    "importance": Answer(_importance, ("target",), slow=lambda _: True, fits=_classifying_transformer),
    "without-each": Answer(_without_each, slow=lambda _: True, fits=_classifying_transformer),
    "film": Answer(_film, slow=lambda _: True, fits=_filmed),
}
