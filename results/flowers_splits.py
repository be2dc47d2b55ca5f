"""The splits behind the rows of Flowers-102 with 10 pictures a class in records.md.

    python results/flowers_splits.py flowers102 splits

FLOWERS is a folder SPLIT/CLASS/picture; how it was split before does not matter. 20 pictures a class are drawn as a pool, the others are
the test split of all four splits OUT/0 … OUT/3: the pool's two halves, the halves exchanged, and two drawn anew. Pictures are linked.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

EACH = 10
"""Pictures a class to learn from, and as many to choose on."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flowers", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    classes = sorted({folder.name for folder in arguments.flowers.glob("*/*") if folder.is_dir()})
    if not classes:
        parser.error(f"{arguments.flowers} holds no SPLIT/CLASS folders")
    if arguments.out.exists():
        parser.error(f"{arguments.out} exists: remove it, or name another folder")
    for name in classes:
        pictures = sorted(arguments.flowers.glob(f"*/{name}/*"))
        random.Random(f"0/{name}").shuffle(pictures)
        pool = [sorted(pictures[start : start + EACH], key=linked) for start in (0, EACH)]
        for number, (train, valid) in enumerate(splits(pool[0], pool[1], name)):
            for part, members in (("train", train), ("valid", valid), ("test", pictures[2 * EACH :])):
                folder = arguments.out / str(number) / part / name
                folder.mkdir(parents=True, exist_ok=True)
                for picture in members:
                    (folder / linked(picture)).symlink_to(picture.resolve())
    print(f"{len(classes)} classes in {arguments.out}/0 to {arguments.out}/3")


def splits(first: list[Path], second: list[Path], name: str) -> list[tuple[list[Path], list[Path]]]:
    """(train, valid) of each split."""
    made = [(first, second), (second, first)]
    for number in (2, 3):
        both = first + second
        random.Random(f"again/{number}/{name}").shuffle(both)
        made.append((both[:EACH], both[EACH:]))
    return made


def linked(picture: Path) -> str:
    """Two splits may hold pictures of one name."""
    return f"{picture.parts[-3]}-{picture.name}"


if __name__ == "__main__":
    main()
