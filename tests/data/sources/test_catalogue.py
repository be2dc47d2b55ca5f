"""The table of named sets is whole: everything it names exists."""

from __future__ import annotations

import pytest

from vitral.data.sources.catalogue import CATALOGUE, Entry
from vitral.data.sources.fetch import FOLDERS, WAYS
from vitral.data.sources.mirrors import NPM_SHA512, PACKAGES


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE)
def test_an_entry_agrees_with_itself_and_with_the_ways_to_get_it(entry: Entry) -> None:
    assert set(entry.ways) <= set(WAYS) and (not entry.ways or entry.name in FOLDERS)
    assert not entry.class_names or len(entry.class_names) == entry.classes
    assert not entry.mean or (len(entry.mean) == len(entry.std or ()) == entry.channels and all(0 < value < 1 for value in entry.mean))
    assert bool({"npm", "debian"} & {*entry.ways}) == (entry.name in PACKAGES) and ("npm" in entry.ways) == (entry.name in NPM_SHA512)
