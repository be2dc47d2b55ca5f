"""What the verbs that look at pictures share: parsing, opening the model, finding the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vitral.base.errors import DataError, UsageError

if TYPE_CHECKING:
    from vitral.model.classifier import Classifier

T = TypeVar("T")
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


def parse(kind: type[T], arguments: list[str], verb: str, example: str) -> T:
    """A verb's settings from its arguments; tyro prints help and complaints itself, with exit code 2."""
    import tyro

    return tyro.cli(kind, args=arguments, prog=f"vitral {verb}", description=f"{(kind.__doc__ or '').strip()}\n\n{example}")


def open_model(name: str) -> Classifier:
    """Anything `vitral.load` takes. What had to be assumed about it is said on stderr."""
    from vitral.weights.load import load

    return load(name)


def picture_paths(given: Sequence[str]) -> list[Path]:
    """Files as they are, folders by the pictures in them, sorted."""
    if not given:
        raise UsageError("no pictures given", "name at least one picture or a folder of pictures")
    paths: list[Path] = []
    for name in given:
        path = Path(name)
        if path.is_dir():
            found = sorted(inner for inner in path.iterdir() if inner.suffix.lower() in ENDINGS and inner.is_file())
            if not found:
                raise DataError(f"the folder {path} holds no pictures", f"name one with {', '.join(ENDINGS[:4])} files")
            paths += found
        elif not path.exists():
            raise DataError(f"{path} does not exist", "name a picture or a folder of pictures")
        else:
            paths.append(path)
    return paths
