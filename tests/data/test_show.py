"""What the sheets of a data set show; that they are written is tests/cli/test_data.py's."""

from __future__ import annotations

import numpy as np
import torch

from vitral.config import DataConfig
from vitral.data.datasets import open_data
from vitral.data.preprocess import Preprocess
from vitral.data.show import class_examples, undo


def test_the_examples_of_a_class_are_of_that_class() -> None:
    split = open_data(DataConfig(name="digits")).validation
    chosen = class_examples(split, 4)
    assert list(chosen) == list(split.class_names)
    assert all((split.labels[positions] == label).all() and len(positions) == 4 for label, positions in enumerate(chosen.values()))
    assert any((chosen[name] != positions).any() for name, positions in class_examples(split, 4, seed=1).items())


def test_normalisation_is_undone_to_the_bit() -> None:
    for channels, mode in ((1, "L"), (3, "RGB")):
        preprocess = Preprocess((4, 4), channels, (0.3,), (0.2,))
        pixels = np.random.default_rng(0).integers(0, 256, (channels, 4, 4), dtype=np.uint8)
        shown = undo(preprocess.normalise(torch.from_numpy(pixels)), preprocess)
        assert shown.mode == mode and np.array_equal(np.asarray(shown).reshape(4, 4, channels).transpose(2, 0, 1), pixels)
