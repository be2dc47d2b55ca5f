"""Studies: several trainings that answer one question, with intervals and an honest conclusion.

`vitral.study.compare`, `.scale`, `.probe` and `.embed` do what the verbs do, as calls; the first three return a `Result` (table, rows,
conclusion, path).
They are loaded when first used. Some have the names of their files: `vitral.study.probe` is the call, and
`from vitral.study.probe import …` reaches into its file.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vitral.base.lazy import lazily

if TYPE_CHECKING:
    from vitral.study.embed import embed
    from vitral.study.fight.compare import compare
    from vitral.study.fight.folder import Result
    from vitral.study.fight.scale import scale
    from vitral.study.probe import probe

__all__ = ["Result", "compare", "embed", "probe", "scale"]

_CALLS = ("embed", "probe")


class _Package(ModuleType):
    """Python puts each file that it loads into its package by name: there the call of that name belongs."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _CALLS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
__getattr__, __dir__ = lazily(
    __name__,
    {
        "embed": ("embed",),
        "fight.compare": ("compare",),
        "fight.folder": ("Result",),
        "fight.scale": ("scale",),
        "probe": ("probe",),
    },
)
