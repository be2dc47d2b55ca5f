"""vitral audit MODEL DATA: which explanation can be trusted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from vitral.base.files import check_writable, plain
from vitral.base.progress import print_clean, say
from vitral.base.text import NOTHING, table
from vitral.cli.opening import ModelFlags, open_model
from vitral.cli.parsing import parse

EXAMPLES = """Test which explanations of a model can be trusted, against noise, an edge detector and a blob in the middle.

The tests: a planted patch that decides the class, four images in one, removed patches, permuted weights and labels, small changes of the
image. They need no labels. `vitral look` then shows the verdicts with the maps.

Examples:
  vitral audit runs/digits digits
  vitral audit vit_tiny.safetensors photos --methods relevance,rollout
  vitral audit runs/flowers folder:photos --method my.py:my_map --json
"""


@dataclass(frozen=True)
class _Flags(ModelFlags):
    model: Annotated[str, "MODEL"]
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME."""
    data: Annotated[str, "DATA"]
    """A name from `vitral data list`, folder:PATH, or a folder of pictures."""
    methods: str = ""
    """Methods, joined by commas; empty: the usual ones that suit the model."""
    method: tuple[str, ...] = ()
    """Methods of your own: FILE.py:FUNCTION, called with a tape and target=; they give a Heatmap or an array. The file is run."""
    split: Literal["all", "test", "validation", "train"] | None = None
    """Which pictures; None: the test split of data that has one, else all."""
    root: str | None = None
    """Where data sets are kept; None: $VITRAL_DATA or ~/.cache/vitral/data."""
    pictures: int = 12
    """How many are explained; methods of many passes explain a third of them in all tests but removal. Twice as many take twice as long."""
    masks: Path | None = None
    """A folder with a mask NAME.png for pictures called NAME: white is inside."""
    seed: int = 0
    """Of which pictures, and of what is permuted."""
    out: Path | None = None
    """Folder of the audit; None: MODEL/audit of a run folder, else audits/NAME. One that is there is replaced."""
    json: bool = False
    """Print everything as JSON."""


def run(arguments: list[str]) -> int:
    flags = parse(_Flags, arguments, "vitral audit", EXAMPLES)
    from vitral.config import DataConfig
    from vitral.data.sources.kinds import check_name
    from vitral.draw.provenance import command_line
    from vitral.look.method import methods_named
    from vitral.look.verdicts import audit_folder
    from vitral.report.audit import write_audit
    from vitral.study.audit.audit import audit
    from vitral.study.audit.own_method import load_method

    methods, own = [name for name in flags.methods.split(",") if name], [load_method(name) for name in flags.method]
    methods_named(methods)
    folder = flags.out or audit_folder(flags.model)
    check_writable(folder)
    if not Path(flags.data).is_dir():
        check_name(flags.data)
    model = open_model(flags.model, flags)
    result = audit(
        model,
        DataConfig(name=flags.data, root=flags.root),
        [*methods, *own],
        split=flags.split,
        pictures=flags.pictures,
        masks=flags.masks,
        seed=flags.seed,
    )
    page = write_audit(result, model, folder, flags.data, command_line(["vitral", "audit", *arguments]))
    if flags.json:
        print_clean(json.dumps(plain({**result.to_dict(), "page": page}), indent=2))
        return 0
    for note in result.notes:
        say(f"note: {note}")
    columns = ("planted patch", "four in one", "removal", "permuted weights", "small changes", "classes")
    rows = [
        [
            row.method,
            *(
                f"{row.tests[test][0]:.2f} ({row.tests[test][1]:.2f} to {row.tests[test][2]:.2f})" if test in row.tests else NOTHING
                for test in columns
            ),
        ]
        for row in result.rows
    ]
    print_clean(table(rows, ["", *columns], align="lr"))
    print_clean("")
    for row in result.rows:
        print_clean(row.text)
    print_clean(page)
    return 0
