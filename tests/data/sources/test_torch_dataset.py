"""Data that a program brings itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

from vitral.base.errors import DataError, UsageError
from vitral.config import DataConfig
from vitral.data.sources.torch_dataset import open_own
from vitral.data.splits.open import open_data


class Pairs(Dataset):
    """Images by number; every read is counted."""

    def __init__(self, images: list[Any], labels: list[int], **attributes: Any) -> None:
        self.images, self.labels, self.read = images, labels, 0
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        self.read += 1
        return self.images[number], self.labels[number]


PIXELS = np.random.default_rng(0).integers(0, 256, (12, 6, 8, 3), np.uint8)
LABELS = [0, 1, 2] * 4


@pytest.mark.parametrize(
    "form",
    [Image.fromarray, np.asarray, lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1)],
    ids=["PIL", "array", "tensor"],
)
def test_every_kind_of_image_gives_the_same_pixels(form: Any) -> None:
    source = open_own(Pairs([form(pixels) for pixels in PIXELS], LABELS))
    assert (source.name, source.class_names, source.native_size, source.channels) == ("own:Pairs", ("0", "1", "2"), (6, 8), 3)
    data = open_data(DataConfig(validation=0.25), source=source)
    shown = np.concatenate([split.pixels().numpy() for split in (data.train, data.validation, data.test())])
    order = np.concatenate([split.indices for split in (data.train, data.validation, data.test())])
    assert sorted(order.tolist()) == list(range(12))
    assert (shown == PIXELS.transpose(0, 3, 1, 2)[order]).all()


def test_splits_of_its_own_and_names_of_its_own() -> None:
    first, second, third = (Pairs(list(PIXELS[k::3]), [0, 1, 0, 1], classes=["cat", "dog"]) for k in range(3))
    data = open_data(DataConfig(), source=open_own({"train": first, "validation": second, "test": third}))
    assert data.class_names == ("cat", "dog")
    assert (data.train.pixels().numpy() == PIXELS[0::3].transpose(0, 3, 1, 2)).all()
    assert (data.test().pixels().numpy() == PIXELS[2::3].transpose(0, 3, 1, 2)).all()


def test_known_labels_cost_no_image() -> None:
    dataset = Pairs(list(PIXELS), LABELS, targets=torch.tensor(LABELS))
    part = open_own(Subset(dataset, [5, 1, 3])).train
    assert part.labels.tolist() == [2, 1, 0]
    assert dataset.read <= 3, "no more than are looked at for their size"
    transformed = Pairs(list(PIXELS), LABELS, targets=[9] * 12, target_transform=int)
    assert open_own(transformed).train.labels.tolist() == LABELS, "what the items say, where targets are transformed"


def test_what_cannot_be_a_picture_is_refused_by_number() -> None:
    ready = TensorDataset(torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(DataError, match="float32"):
        open_data(DataConfig(), source=open_own(ready))
    with pytest.raises(UsageError, match="has test"):
        open_own({"test": ready})
    with pytest.raises(UsageError, match="length"):
        open_own(iter([]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "item, told",
    [
        ({"image": PIXELS[0], "label": 1}, r"own:list item 0 is of type dict: give \(image, label\)"),
        (PIXELS[0], r"item 0 is of type ndarray: give \(image, label\)"),
        ((PIXELS[0], "cat"), "own:list item 0 has the label 'cat': give whole numbers from 0"),
        ((PIXELS[0], None), "item 0 has the label None: give whole numbers"),
    ],
)
def test_items_that_are_no_image_with_a_number_are_refused_by_number(item: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        open_own([item])  # type: ignore[arg-type]


def test_only_the_program_has_it() -> None:
    with pytest.raises(DataError, match="own:Pairs"):
        open_data(DataConfig(name="own:Pairs"))
