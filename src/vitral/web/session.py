"""Models, images and the answers about them: the explorer's work, without HTTP.

Every method runs on the model's thread, except uploads. Answers are cached by the content of the image and by every option.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

import torch
from PIL import Image

from vitral.base.errors import DataError, UsageError
from vitral.base.files import sha256_bytes
from vitral.base.picture import Picture
from vitral.data.images.decode import decode
from vitral.data.images.preprocess import open_picture
from vitral.look.method import RECORDS
from vitral.look.switch_off import without_patches
from vitral.look.verdicts import audit_folder, read_verdicts
from vitral.model.classifier import Classifier
from vitral.web.answers import ANSWERS, Question, check_question
from vitral.web.film import snapshots_of
from vitral.web.first_images import labelled_images
from vitral.web.pack import SERVED, Packing
from vitral.web.server.decoder import SAVE_AGAIN
from vitral.web.server.jobs import LRUCache
from vitral.web.server.limits import Limits, Refusal, check_image
from vitral.web.trace import clean_name, describe, model_names, pack_figures, thumbnail


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
        self.verdicts = [read_verdicts(model, audit_folder(source)) for source, model in zip(self.sources, self.models, strict=True)]
        self.initial: list[dict[str, Any]] = []
        """The images that the session starts with, as the page gets them."""
        self._labelled: dict[int, tuple[torch.Tensor, list[int]] | None] = {}
        self._initial_bytes: dict[str, bytes] = {}
        self._uploads = LRUCache(self.limits.pictures)
        self._decoded = LRUCache(self.limits.decoded)
        self._thumbs = LRUCache(self.limits.thumbs)
        self._results = LRUCache(self.limits.results)

    # Pictures

    def add_initial(self, content: bytes, name: str) -> str:
        """A picture from the command line: always at hand, never pushed out by uploads."""
        try:
            entry = self.add_picture(content, name)
        except Refusal as error:  # of several files on a command line, this one
            raise Refusal(error.status, f"{name}: {error.message}", error.hint) from None
        if entry["picture"] not in self._initial_bytes:
            self._initial_bytes[entry["picture"]] = content
            self.initial.append(entry)
        return entry["picture"]

    def add_picture(self, content: bytes, name: str, image: Image.Image | None = None) -> dict[str, Any]:
        """Check and remember a picture; its name is made of its bytes, so the same picture is stored once.

        `image`: as it was decoded elsewhere. Of all methods, only this one may be called beside the model's thread.
        """
        width, height = check_image(content, self.limits)
        key = sha256_bytes(content)[:16]
        if key not in self._uploads and key not in self._initial_bytes:
            self._store_decoded(key, image or self._decode(content))  # a damaged picture is refused now, not later
            self._uploads.put(key, content, len(content))
        thumb = self._thumbs.get(key)
        if thumb is None:
            thumb = thumbnail(image or self._decoded.get(key) or self._decode(content))
            self._thumbs.put(key, thumb, len(thumb))
        return {"picture": key, "name": clean_name(name), "width": width, "height": height, "thumb": thumb}

    def holds(self, content: bytes) -> bool:
        """Is this very picture here already?"""
        key = sha256_bytes(content)[:16]
        return key in self._uploads or key in self._initial_bytes

    def content(self, key: str) -> bytes:
        """The bytes of a picture."""
        content = self._initial_bytes.get(key) or self._uploads.get(key)
        if content is None:
            raise Refusal(404, "this picture is not (or no longer) held by the server", "drop it on the page again")
        return content

    def picture(self, model: int, key: str) -> Picture:
        content = self.content(key)
        image = self._decoded.get(key)
        if image is None:
            # In the model's thread, without a deadline: these are the user's own files, or were decoded in time when they came.
            image = self._store_decoded(key, self._decode(content))
        try:
            return open_picture(image, self.model(model), "picture")
        except DataError as error:
            raise Refusal(422, error.message, SAVE_AGAIN) from None

    def _decode(self, content: bytes) -> Image.Image:
        try:
            image = decode(content, "picture")
        except DataError as error:
            raise Refusal(422, error.message, SAVE_AGAIN) from None
        assert isinstance(image, Image.Image)  # check_image lets no arrays through
        return image

    def _store_decoded(self, key: str, image: Image.Image) -> Image.Image:
        self._decoded.put(key, image, image.width * image.height * len(image.getbands()))
        return image

    # Models

    def description(self) -> dict[str, Any]:
        """Everything the page needs before a picture is shown."""
        models = [describe(*each) for each in zip(self.names, self.models, self.verdicts, strict=True)]
        return {
            "mode": "served",
            "models": [model | {"film": [step for step, _ in film]} for model, film in zip(models, self.films, strict=True)],
            "pictures": self.initial,
            "limits": {"upload": self.limits.upload, "pixels": self.limits.pixels},
        }

    # Answers

    def answer(self, what: str, model: int, picture: str, *, packing: Packing = SERVED, **options: Any) -> bytes:
        """An entry of the table of answers, packed. `options`: of method, target and off, those that the entry takes."""
        entry = ANSWERS[what]
        if unknown := options.keys() - set(entry.options):
            raise TypeError(f"{what} takes {entry.options}, not {sorted(unknown)}")
        question = Question(what, model, picture, packing=packing, **options)
        check_question(self, question)
        if question.method and not RECORDS[question.method].explains:
            question = dataclasses.replace(question, target=None)  # the same map for every class
        return self._remember(question, lambda: entry.make(self, question))

    def figures(self, model: int, packing: Packing = SERVED) -> bytes:
        """The model's own figures, packed: they depend on no image."""
        return self._remember(("figures", model, packing), lambda: pack_figures(self.model(model), packing.compression))

    # What answers are made from

    def model(self, index: int) -> Classifier:
        if not 0 <= index < len(self.models):
            raise Refusal(404, f"model {index} does not exist", f"this server has {len(self.models)}")
        return self.models[index]

    def picture_without(self, asked: Question) -> Picture:
        """The image of a question, without the patches that are off."""
        picture = self.picture(asked.model, asked.picture)
        if not asked.off.patches:
            return picture
        return dataclasses.replace(picture, tensor=without_patches(self.model(asked.model), picture.tensor, asked.off.patches))

    def labelled(self, model: int) -> tuple[torch.Tensor, list[int]] | None:
        """Labelled validation images of the model's run, read once; None where there are none."""
        if model not in self._labelled:
            self._labelled[model] = labelled_images(self.sources[model], self.models[model])
        return self._labelled[model]

    def _remember(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        answer = self._results.get(key)
        if answer is None:
            answer = make()
            self._results.put(key, answer, len(answer))
        return answer
