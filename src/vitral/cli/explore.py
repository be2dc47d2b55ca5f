"""vitral explore [MODEL] [IMAGE…]: a page in the browser that shows a model at work."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vitral.base.errors import MissingError, UsageError
from vitral.base.layout import RUNS, WEIGHTS
from vitral.base.lazy import how_to_install
from vitral.base.progress import print_clean
from vitral.cli.opening import ModelFlags, open_model
from vitral.cli.parsing import parse

_DEMO = RUNS / "demo"
_SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"))

EXAMPLES = """Open a page that shows a model at work: hover a patch to see what it attends to, browse all heads, switch parts off,
compare two models.

Without a model it shows the demo's run; without images, some of the run's own or two photographs.

Examples:
  vitral explore
  vitral explore runs/flowers rose.jpg
  vitral explore timm:vit_base_patch16_224 cat.jpg --compare runs/resnet
  vitral explore vit_tiny.safetensors cat.jpg --export page.html
  vitral explore vit_tiny.safetensors cat.jpg --export page.html --live
"""


@dataclass(frozen=True)
class _Flags(ModelFlags):
    targets: Annotated[tuple[str, ...], "[MODEL] [IMAGE…]"] = ()
    """A run folder, a weights file, or timm:NAME, torchvision:NAME, hf:NAME; then pictures."""
    compare: str | None = None
    """A second model, shown beside the first on the same picture."""
    export: str | None = None
    """Write one offline page to this file and stop, instead of starting a server."""
    live: bool = False
    """With --export: the page holds the model itself, in 8-bit weights, and runs it on any picture dropped on it."""
    host: str = "127.0.0.1"
    """Where to listen. Any other than this machine's own address asks visitors for a token."""
    port: int | None = None
    """Default: 8642, or the next that is free."""
    no_browser: bool = False
    """Print the address without opening a browser."""


def run(arguments: list[str]) -> int:
    flags = parse(_Flags, arguments, "vitral explore", EXAMPLES)
    from vitral.base.text import byte_size
    from vitral.web.first_images import fitting_images, named_images
    from vitral.web.session import Session

    if flags.live and flags.export is None:
        raise UsageError("--live makes a page that runs the model", "say where to write it: --export page.html --live")
    where, paths = split_arguments(flags.targets)
    if missing := next((path for path in paths if not Path(path).is_file()), None):
        raise MissingError(f"{missing} does not exist", "name pictures")
    models = {where: open_model(where, flags)}
    if flags.compare is not None:
        models[flags.compare if flags.compare != where else f"{where} (again)"] = open_model(
            flags.compare, dataclasses.replace(flags, preprocess=None)
        )
    session = Session(models)
    for content, name in named_images(paths, session.limits) or fitting_images(where):
        session.add_initial(content, name)
    if flags.export is not None:
        from vitral.web.export import export_page
        from vitral.web.live import export_live

        path = (export_live if flags.live else export_page)(session, flags.export)
        print_clean(f"{path}  {byte_size(path.stat().st_size)}")
        return 0
    try:
        from vitral.web.server.serve import serve
    except ModuleNotFoundError as error:
        raise UsageError(f"the explorer needs {error.name}", f"{how_to_install('fastapi')}; --export works without it") from None
    serve(session, flags.host, flags.port, not flags.no_browser)
    return 0


def split_arguments(targets: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """MODEL and IMAGE…; without a model the demo's, where it was trained."""
    if targets and Path(targets[0]).suffix.lower() not in _SUFFIXES:
        return targets[0], targets[1:]
    if not (_DEMO / WEIGHTS).is_file():
        raise UsageError(f"no model was named and {_DEMO} does not exist", "run vitral demo first, or name a model: vitral explore MODEL")
    return str(_DEMO), targets
