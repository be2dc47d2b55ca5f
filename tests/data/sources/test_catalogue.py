"""The table of named sets is whole: everything it names exists."""

from __future__ import annotations

import pytest

from vitral.data.sources.catalogue import CATALOGUE, Entry
from vitral.data.sources.fetch import PROVIDERS


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE)
def test_an_entry_agrees_with_itself_and_with_its_providers(entry: Entry) -> None:
    assert set(entry.providers) <= set(PROVIDERS) and bool(entry.providers) == bool(entry.folder)
    assert not entry.class_names or len(entry.class_names) == entry.classes
    assert not entry.mean or (len(entry.mean) == len(entry.std or ()) == entry.channels and all(0 < value < 1 for value in entry.mean))
    assert bool({"npm", "debian"} & {*entry.providers}) == bool(entry.package) and ("npm" in entry.providers) == bool(entry.digest)
    assert ("torchvision" in entry.providers) == bool(entry.torchvision)
