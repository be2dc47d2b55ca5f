"""What the verbs that look at pictures share: opening the model, finding the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vitral.base.errors import DataError, MissingError, UsageError

if TYPE_CHECKING:
    from vitral.model.classifier import Classifier


def open_model(name: str) -> Classifier:
    """Anything `vitral.load` takes. What had to be assumed about it is said on stderr."""
    from vitral.base.files import read_json
    from vitral.base.layout import CONFIG
    from vitral.weights.load import announced, load

    model = load(name)
    described = Path(name) / CONFIG
    # Weights from elsewhere were announced when they were loaded; a folder of ours keeps what was assumed back then.
    return announced(model) if described.is_file() and "model" in read_json(described) else model


def picture_paths(given: Sequence[str]) -> list[Path]:
    """Files as they are, folders by the pictures in them and in their folders, sorted."""
    if not given:
        raise UsageError("no pictures given", "name at least one picture or a folder of pictures")
    paths: list[Path] = []
    for name in given:
        path = Path(name)
        if path.is_dir():
            from vitral.data.decode import EXTENSIONS

            found = sorted(inner for inner in path.rglob("*") if inner.suffix.lower() in EXTENSIONS and inner.is_file())
            if not found:
                raise DataError(f"the folder {path} holds no pictures", f"files ending in {', '.join(sorted(EXTENSIONS))} are looked for")
            paths += found
        elif not path.exists():
            raise MissingError(f"{path} does not exist", "name a picture or a folder of pictures")
        else:
            paths.append(path)
    return paths
