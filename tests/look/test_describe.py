"""Names of figures."""

from __future__ import annotations

from types import SimpleNamespace

from vitral.look.describe import stems


def test_sheets_of_pictures_with_one_name_do_not_meet() -> None:
    pictures = [SimpleNamespace(source=source) for source in ("a/cat-1.png", "a/cat.jpg", "a/cat.png", "b/cat-1.png", "a/dog.png")]
    names = stems(pictures)  # type: ignore[arg-type]
    assert len(set(names)) == 5 and names[4] == "dog"
    assert stems(pictures[:3])[0] == "cat-1", "a name of its own is kept"  # type: ignore[arg-type]
