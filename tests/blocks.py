"""What the pages show in code blocks: Python, and command lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

NEEDS = re.compile(r"\s*# needs \S.*$")
"""The one way in which a line or a block says that it cannot run everywhere: a GPU, data or weights from elsewhere, hours."""
COMMAND = re.compile(r"(?:\$ )?((?:vitral|torchrun|python) .+)")


@dataclass(frozen=True)
class Step:
    text: str
    kind: str
    """python: a block; shell: a line."""
    line: int
    after: str = ""
    """The line after it: what a mistake is answered with."""

    @property
    def runs(self) -> bool:
        return not any(NEEDS.search(line) for line in self.text.splitlines())

    @property
    def command(self) -> str:
        """Without what is said beside it."""
        return re.split(r" {3,}| {2}#", self.text)[0].strip()


def steps(page: Path) -> list[Step]:
    """Fenced Python, and the command lines of other fenced or indented blocks, in their order."""
    found: list[Step] = []
    lines = [*page.read_text(encoding="utf-8").splitlines(), ""]
    language, start = None, 0
    for number, line in enumerate(lines[:-1], start=1):
        if line.startswith("```"):
            if language == "python":
                found.append(Step("\n".join(lines[start : number - 1]), "python", start + 1))
            language, start = (line.strip("` "), number) if language is None else (None, 0)
        elif language in (None, "", "sh", "bash", "console"):
            shown = line if language is not None else re.match(r"(?: {4})+(.*)", line)
            match = COMMAND.match(shown if isinstance(shown, str) else shown[1] if shown else "")
            if match:
                found.append(Step(match[1], "shell", number, lines[number].strip()))
    return found
