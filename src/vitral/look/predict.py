"""What a model says a picture shows: the most probable classes, ranked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vitral.base.errors import FailedError, UsageError, need_model
from vitral.base.numbers import to_double, to_numpy
from vitral.base.progress import say
from vitral.base.records import ranked
from vitral.base.text import html, percent, table
from vitral.config.formats import AnswerPrecision
from vitral.cost.eight_bits import AnsweringInFp8
from vitral.cost.precision import Answering, worth_bf16
from vitral.data.splits.split import LABEL_JOINER
from vitral.draw.charts import prediction_chart
from vitral.kernels.graphs import replayed
from vitral.look.watch import as_images, each
from vitral.model.classifier import Classifier, evaluating
from vitral.model.head import probabilities
from vitral.model.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image

BATCH = 64


class Ranking(list[tuple[str, float]]):
    """A list of (class, probability), most probable first; `logits` and `indices` in the same order.

    Of a model that gives several labels `thresholds` has the probability from which each of the classes is an answer.
    """

    def __init__(
        self,
        names: list[str],
        probabilities: np.ndarray,
        logits: np.ndarray,
        indices: list[int],
        source: str = "",
        thresholds: Sequence[float] = (),
    ) -> None:
        super().__init__(zip(names, (float(p) for p in probabilities), strict=True))
        self.logits: list[float] = [float(value) for value in logits]
        self.indices = indices
        self.source = source
        self.thresholds: list[float] = list(thresholds)

    @property
    def answers(self) -> list[str]:
        """The most probable class; of several labels every class at or above its threshold."""
        if not self.thresholds:
            return [self[0][0]]
        return [name for (name, share), threshold in zip(self, self.thresholds, strict=True) if share >= threshold]

    def to_dict(self) -> dict[str, Any]:
        rows = zip(self, self.logits, self.indices, strict=True)
        classes = [{"class": name, "index": index, "probability": share, "logit": logit} for (name, share), logit, index in rows]
        for row, threshold in zip(classes, self.thresholds, strict=False):
            row["threshold"] = threshold
        return {"picture": self.source, "classes": classes, **({"answers": self.answers} if self.thresholds else {})}

    def _repr_html_(self) -> str:
        rows = zip(self, self.logits, strict=True)
        lines = [[name, percent(share), f"{logit:.3f}"] for (name, share), logit in rows]
        return html(f"{self.source or 'prediction'}\n{table(lines, ['class', 'probability', 'logit'], 'lr')}")

    def record(self) -> dict[str, Any]:
        """As a row of a table."""
        joined = {"answer": LABEL_JOINER.join(self.answers)} if self.thresholds else {}
        return {"path": self.source, **ranked(self), **joined}

    def draw(self, title: str = "", image: Image.Image | None = None) -> Figure:
        return prediction_chart([name for name, _ in self], self.logits, [share for _, share in self], image=image, title=title)


def predict(
    model: Classifier, pictures: Any, top: int = 5, *, batch_size: int = BATCH, precision: AnswerPrecision = "auto"
) -> list[Ranking]:
    """Ranked (class, probability) for each picture; pictures as `vitral.watch` takes them, or one after the other.

    `precision` auto: after a first batch with the same answers, bf16 on a CPU that is quicker with it. fp8 (Ada, Hopper and later): scales
    from the first batch; how often bf16 gives the same answer is said. A few pictures at a time, call after call, are replayed on a GPU.
    """
    _check_classes(model)
    if batch_size < 1:
        raise UsageError(f"a batch of {batch_size} pictures", "use a batch size of at least 1")
    items = iter(pictures if isinstance(pictures, Iterator) else each(pictures))
    parameter = next(model.parameters())
    rankings: list[Ranking] = []
    if precision == "fp8":
        answer = AnsweringInFp8(model, parameter.device)
    else:
        answer = Answering(replayed(model), parameter.device, precision, worth=worth_bf16(model))
    with evaluating(model), torch.inference_mode():
        while some := list(itertools.islice(items, batch_size)):
            images, opened = as_images(model, some)
            logits = to_double(answer(images.to(parameter.device, parameter.dtype)))
            sources = [picture.source for picture in opened] if opened else [f"picture {len(rankings) + k}" for k in range(len(logits))]
            rankings += [rank(model, row, source, top) for row, source in zip(logits, sources, strict=True)]
    if isinstance(answer, AnsweringInFp8):
        say(str(answer))
    return rankings


def rank(model_or_tape: Classifier | Tape, logits: torch.Tensor, source: str = "", top: int = 5) -> Ranking:
    """One picture's logits (K,) as a ranking."""
    if not isinstance(top, int | np.integer) or top < 1:
        raise UsageError(f"top = {top}", "ask for at least one class")
    logits = to_double(logits)
    if not logits.isfinite().all():
        raise FailedError(f"the answer for {source or 'a picture'} is not a number", "the weights are damaged, or their training diverged")
    origin = model_or_tape.origin
    shares = probabilities(logits, origin.multi_label)
    order = logits.argsort(descending=True, stable=True).tolist()
    if origin.multi_label:  # every answer, however many; then the most probable of the others
        above = [index for index in order if shares[index] >= origin.thresholds[index]]
        order = sorted({*above, *order[:top]}, key=order.index)
    else:
        order = order[:top]
    names, thresholds = [origin.class_name(index) for index in order], [origin.thresholds[index] for index in order if origin.multi_label]
    return Ranking(names, to_numpy(shares[order]), to_numpy(logits[order]), order, source, thresholds)


def _check_classes(model: Classifier) -> None:
    need_model(model)
    if not model.config.classes:
        raise UsageError(
            "this model has no head: it gives features, not classes", "give it one: vitral probe --save, vitral train finetune"
        )
