"""Models, pictures and what is known of both: the explorer's work, without a word of HTTP.

Every method runs on the model's thread, but for uploads. Results are remembered by the picture's content, so asking twice costs nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from PIL import Image

from vitral.base.errors import DataError, UsageError
from vitral.base.files import sha256_bytes
from vitral.base.picture import Picture
from vitral.data.images.decode import decode
from vitral.data.images.preprocess import open_picture
from vitral.look.method import RECORDS
from vitral.look.verdicts import audit_folder, read_verdicts
from vitral.look.watch import watch
from vitral.model.classifier import Classifier
from vitral.web.depth import pack_depth, pack_features
from vitral.web.film import pack_film, snapshots_of
from vitral.web.first_images import labelled_images
from vitral.web.importance import importance
from vitral.web.pack import LIVE_LEVELS
from vitral.web.server.decoder import SAVE_AGAIN
from vitral.web.server.jobs import Memory
from vitral.web.server.limits import Limits, Refusal, check_image
from vitral.web.story import pack_story
from vitral.web.surgery import Cut, check_cut, edits_of, operate, without_patches
from vitral.web.trace import clean_name, compare, describe, describe_heat, methods_of, model_figures, model_names, pack_trace, thumbnail

WHOLE = Cut()


class Session:
    """One or two models and the pictures they are shown."""

    def __init__(self, models: dict[str, Classifier], limits: Limits | None = None) -> None:
        if not models:
            raise UsageError("no model to explore", "name a run folder or a weights file")
        self.limits = limits or Limits()
        self.names = model_names(models)
        self.models = [model.eval() for model in models.values()]
        self.sources = [name.removesuffix(" (again)") for name in models]
        self.films = [snapshots_of(*each) for each in zip(self.sources, self.models, strict=True)]
        self.verdicts = [read_verdicts(model, audit_folder(where)) for where, model in zip(self.sources, self.models, strict=True)]
        self.given: list[dict[str, Any]] = []
        self._labelled: dict[int, tuple[torch.Tensor, list[int]] | None] = {}
        self._given_bytes: dict[str, bytes] = {}
        self._uploads = Memory(self.limits.pictures)
        self._decoded = Memory(self.limits.decoded)
        self._thumbs = Memory(self.limits.thumbs)
        self._results = Memory(self.limits.results)

    # Pictures

    def give(self, content: bytes, name: str) -> str:
        """A picture from the command line: always at hand, never pushed out by uploads."""
        try:
            entry = self.add_picture(content, name)
        except Refusal as error:  # of several files on a command line, this one
            raise Refusal(error.status, f"{name}: {error.message}", error.hint) from None
        if entry["picture"] not in self._given_bytes:
            self._given_bytes[entry["picture"]] = content
            self.given.append(entry)
        return entry["picture"]

    def add_picture(self, content: bytes, name: str, image: Image.Image | None = None) -> dict[str, Any]:
        """Check and remember a picture; its name is made of its bytes, so the same picture is stored once.

        `image`: as it was decoded elsewhere. Of all methods, only this one may be called beside the model's thread.
        """
        width, height = check_image(content, self.limits)
        key = sha256_bytes(content)[:16]
        if key not in self._uploads and key not in self._given_bytes:
            self._keep_decoded(key, image or self._decode(content))  # a damaged picture is refused now, not later
            self._uploads.put(key, content, len(content))
        thumb = self._thumbs.get(key)
        if thumb is None:
            thumb = thumbnail(image or self._decoded.get(key) or self._decode(content))
            self._thumbs.put(key, thumb, len(thumb))
        return {"picture": key, "name": clean_name(name), "width": width, "height": height, "thumb": thumb}

    def holds(self, content: bytes) -> bool:
        """Is this very picture here already?"""
        key = sha256_bytes(content)[:16]
        return key in self._uploads or key in self._given_bytes

    def picture(self, model: int, key: str) -> Picture:
        content = self._given_bytes.get(key) or self._uploads.get(key)
        if content is None:
            raise Refusal(404, "this picture is not (or no longer) held by the server", "drop it on the page again")
        image = self._decoded.get(key)
        if image is None:
            # Beside the model, without a deadline: these are the user's own files, or were decoded in time when they came.
            image = self._keep_decoded(key, self._decode(content))
        try:
            return open_picture(image, self._model(model), "picture")
        except DataError as error:
            raise Refusal(422, error.message, SAVE_AGAIN) from None

    def _decode(self, content: bytes) -> Image.Image:
        try:
            image = decode(content, "picture")
        except DataError as error:
            raise Refusal(422, error.message, SAVE_AGAIN) from None
        assert isinstance(image, Image.Image)  # check_image lets no arrays through
        return image

    def _keep_decoded(self, key: str, image: Image.Image) -> Image.Image:
        self._decoded.put(key, image, image.width * image.height * len(image.getbands()))
        return image

    # Models

    def description(self) -> dict[str, Any]:
        """Everything the page needs before a picture is shown."""
        models = [describe(*each) for each in zip(self.names, self.models, self.verdicts, strict=True)]
        return {
            "live": True,
            "models": [model | {"film": [step for step, _ in film]} for model, film in zip(models, self.films, strict=True)],
            "pictures": self.given,
            "limits": {"upload": self.limits.upload, "pixels": self.limits.pixels},
        }

    def figures(self, model: int) -> dict[str, Any]:
        """The model's own figures: they depend on no picture."""
        return self._remember(("figures", model), lambda: model_figures(self._model(model)))

    # One picture

    def trace(self, model: int, key: str, levels: int = LIVE_LEVELS, level: int = 1, cut: Cut = WHOLE) -> bytes:
        """Picture, logits and attention of one forward pass, with parts switched off if any, packed for the browser."""

        def make() -> bytes:
            return pack_trace(self._model(model), self._cut_picture(model, key, cut), self.limits, levels, level, edits_of(cut))

        return self._remember(("trace", model, key, levels, cut), make)

    def story(self, model: int, key: str, level: int = 1) -> bytes:
        """The numbers behind the story's steps, packed for the browser."""
        return self._remember(("story", model, key), lambda: pack_story(self._model(model), self.picture(model, key), level))

    def map(self, model: int, key: str, method: str, target: int | None = None, cut: Cut = WHOLE) -> dict[str, Any]:
        """One method's heat map."""
        classifier = self._model(model)
        if method not in methods_of(classifier):
            known = ", ".join(methods_of(classifier))
            raise Refusal(422, f"method {method!r} is not to be had for this model", f"use one of {known}")
        _check_target(classifier, target)
        if not RECORDS[method].explains:
            target = None  # it knows no class, so for every class it is the same map

        def make() -> dict[str, Any]:
            tape = watch(classifier, self._cut_picture(model, key, cut), keep=["logits"], edits=edits_of(cut))
            return describe_heat(RECORDS[method].function(tape, target=target))

        return self._remember(("map", model, key, method, target, cut), make)

    def surgery(
        self,
        model: int,
        key: str,
        heads: Sequence[tuple[int, int]] = (),
        blocks: Sequence[int] = (),
        patches: Sequence[int] = (),
        target: int | None = None,
    ) -> dict[str, Any]:
        """What changes when parts are switched off: probabilities before and after, and the difference of the maps."""
        cut = Cut(tuple(sorted({(b, h) for b, h in heads})), tuple(sorted(set(blocks))), tuple(sorted(set(patches))))
        classifier = self._model(model)
        check_cut(classifier, cut)
        _check_target(classifier, target)

        def make() -> dict[str, Any]:
            image = self.picture(model, key).tensor.to(next(classifier.parameters()).device)
            outcome = operate(classifier, image, [Cut(), cut], target)
            (before, after), (map_before, map_after) = outcome.logits, outcome.maps
            return compare(before, after, map_before, map_after, outcome.method, target, multi_label=classifier.origin.multi_label)

        return self._remember(("surgery", model, key, cut, target), make)

    def depth(self, model: int, key: str, target: int | None = None, cut: Cut = WHOLE, level: int = 1) -> bytes:
        """The head read after every block, packed."""
        _check_target(self._model(model), target)

        def make() -> bytes:
            return pack_depth(self._model(model), self._cut_picture(model, key, cut), target, edits_of(cut), level)

        return self._remember(("depth", model, key, target, cut, level), make)

    def features(self, model: int, key: str, cut: Cut = WHOLE, most: int | None = None, level: int = 1) -> bytes:
        """The patches' tokens after every block, packed: what resembles what is told in the browser."""
        most = most or self.limits.features

        def make() -> bytes:
            return pack_features(self._model(model), self._cut_picture(model, key, cut), most, edits_of(cut), level)

        return self._remember(("features", model, key, cut, most, level), make)

    def importance(self, model: int, key: str, target: int | None = None) -> dict[str, Any]:
        """Every head switched off once, then one after another."""
        classifier = self._model(model)
        _check_target(classifier, target)

        def make() -> dict[str, Any]:
            if model not in self._labelled:
                self._labelled[model] = labelled_images(self.sources[model], classifier)
            labelled = self._labelled[model]
            beside = [] if labelled else [self.picture(model, entry["picture"]).tensor for entry in self.given]
            return importance(classifier, self.picture(model, key), target, labelled, beside)

        return self._remember(("importance", model, key, target), make)

    def film(self, model: int, key: str, level: int = 1) -> bytes:
        """What every snapshot of the run makes of the picture, packed."""
        classifier = self._model(model)
        if not self.films[model]:
            raise Refusal(422, "this model kept no snapshots of its training", "train with some: vitral train RUN --snapshots 24")

        def make() -> bytes:
            return pack_film(self.sources[model], classifier, self.picture(model, key), self.films[model], level)

        return self._remember(("film", model, key, level), make)

    # Inside

    def _cut_picture(self, model: int, key: str, cut: Cut) -> Picture:
        check_cut(self._model(model), cut)
        picture = self.picture(model, key)
        if not cut.patches:
            return picture
        return dataclasses.replace(picture, tensor=without_patches(self._model(model), picture.tensor, cut.patches))

    def _model(self, index: int) -> Classifier:
        if not 0 <= index < len(self.models):
            raise Refusal(404, f"model {index} does not exist", f"this server has {len(self.models)}")
        return self.models[index]

    def _remember(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        found = self._results.get(key)
        if found is None:
            found = make()
            size = len(found) if isinstance(found, bytes) else len(json.dumps(found))
            self._results.put(key, found, size)
        return found


def _check_target(model: Classifier, target: int | None) -> None:
    classes = model.config.classes
    if target is not None and not target < max(1, classes):
        raise Refusal(422, f"class {target} does not exist", f"this model has classes 0 to {classes - 1}")
