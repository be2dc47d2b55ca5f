"""What the sheets of a data set show; that they are written is tests/cli/test_data.py's."""

from __future__ import annotations

from vitral.config import DataConfig
from vitral.data.contact_sheets import class_examples
from vitral.data.splits.open import open_data


def test_the_examples_of_a_class_are_of_that_class() -> None:
    split = open_data(DataConfig(name="digits")).validation
    chosen = class_examples(split, 4)
    assert list(chosen) == list(split.class_names)
    assert all((split.labels[positions] == label).all() and len(positions) == 4 for label, positions in enumerate(chosen.values()))
    assert any((chosen[name] != positions).any() for name, positions in class_examples(split, 4, seed=1).items())
