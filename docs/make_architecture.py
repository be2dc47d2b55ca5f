"""Draws docs/images/architecture.svg from the imports of src/vitral: `python docs/make_architecture.py`. A test compares the two.

An arrow goes from the part that imports to the part that is imported. Dark: there is no other way from one to the other; faint: an
import beside a longer way. The rows are those that tests/test_layers.py checks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vitral"
PICTURE = ROOT / "docs" / "images" / "architecture.svg"

CAPTIONS = {
    "cli": "one file per verb",
    "web": "the explorer",
    "report": "a run or a study → a page",
    "study": "compare, scale, probe, plan",
    "train": "the one loop",
    "look": "tape → heat map",
    "run": "the run folder; asked → settled",
    "weights": "theirs → ours, proved",
    "data": "images → batches",
    "cost": "FLOPs, memory, time",
    "build": "config → module",
    "rivals": "CNN, ResNet, hybrid",
    "model": "the ViT, the tape",
    "kernels": "fused operations",
    "draw": "arrays → pictures",
    "presets": "named models and runs",
    "config": "what is asked for",
    "base": "errors, text, files, progress",
}
WIDTH, ROW, BOX, HEIGHT = 940, 74, 210, 40


def rows() -> list[list[str]]:
    """The layers, top to bottom, with the parts that exist."""
    tree = ast.parse((ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    named = next(node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROWS")
    there = [[part for part in row if (SOURCE / part).is_dir() or (SOURCE / f"{part}.py").is_file()] for row in ast.literal_eval(named)]
    return [row for row in there if row]


def imports() -> set[tuple[str, str]]:
    """(part that imports, part that is imported)."""
    pairs = set()
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        pairs |= {(part, target) for target in imported(ast.parse(path.read_text(encoding="utf-8"))) if target != part}
    return {(part, target) for part, target in pairs if not part.startswith("__")}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "vitral":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vitral."):
            yield (node.module or "").split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("vitral."))


def only_way(edges: set[tuple[str, str]], edge: tuple[str, str]) -> bool:
    """Whether nothing else leads from the one part to the other."""
    seen, ahead = set(), {target for part, target in edges - {edge} if part == edge[0]}
    while ahead:
        seen |= ahead
        ahead = {target for part, target in edges if part in ahead} - seen
    return edge[1] not in seen


def picture() -> str:
    edges, layers = imports(), rows()
    positions: dict[str, tuple[float, float]] = {}
    for index, row in enumerate(layers):
        # Each part under those that import it, as far as its neighbours allow.
        above = {part: [positions[other][0] for other, target in sorted(edges) if target == part and other in positions] for part in row}
        for column, part in enumerate(sorted(row, key=lambda part: round(sum(above[part]) / max(1, len(above[part]))))):
            positions[part] = WIDTH * (column + 1) / (len(row) + 1), 30 + ROW * index
    ways = sorted((only_way(edges, edge), *edge) for edge in edges)  # the dark ones last, on top
    lines = [arrow(positions[part], positions[target], direct) for direct, part, target in ways]
    boxes = [box(part, *positions[part]) for row in layers for part in row]
    height = ROW * len(layers)
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
        for name, colour in (("dark", "#2c5d8f"), ("faint", "#c3ccd6"))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
            f"<title>The parts of Vitral and who imports whom</title><defs>{heads}</defs>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *lines,
            *boxes,
            "</svg>\n",
        ]
    )


def arrow(start: tuple[float, float], end: tuple[float, float], direct: bool) -> str:
    (x1, y1), (x2, y2) = start, end
    if y1 == y2:  # neighbours: from side to side
        turn = BOX / 2 if x2 > x1 else -BOX / 2
        path = f"M{x1 + turn:.0f} {y1:.0f} L{x2 - turn:.0f} {y2:.0f}"
    else:
        y1, y2 = y1 + HEIGHT / 2, y2 - HEIGHT / 2
        # A long way bends aside, so that it does not run through what lies between.
        aside = 0 if y2 - y1 < ROW else (150 if (x1 + x2) / 2 >= WIDTH / 2 else -150) * min(1.0, (y2 - y1) / (4 * ROW))
        bend = f"{x1 + aside:.0f} {y1 + (y2 - y1) * 0.4:.0f} {x2 + aside:.0f} {y1 + (y2 - y1) * 0.6:.0f}"
        path = f"M{x1:.0f} {y1:.0f} C{bend} {x2:.0f} {y2:.0f}"
    colour, width, head = ("#2c5d8f", 1.6, "dark") if direct else ("#c3ccd6", 0.8, "faint")
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}" marker-end="url(#{head})"/>'


def box(part: str, x: float, y: float) -> str:
    name = f"{part}.py" if (SOURCE / f"{part}.py").is_file() else f"{part}/"
    return (
        f'<rect x="{x - BOX / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{BOX}" height="{HEIGHT}" rx="6" fill="#f3f6fa" stroke="#2c5d8f"/>'
        f'<text x="{x:.0f}" y="{y - 3:.0f}" text-anchor="middle" font-size="14" font-weight="bold" fill="#16324f">{name}</text>'
        f'<text x="{x:.0f}" y="{y + 13:.0f}" text-anchor="middle" font-size="11" fill="#44596e">{CAPTIONS[part]}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(PICTURE)
