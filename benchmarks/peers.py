"""Vitral beside timm, torchvision, transformers and vit-pytorch, size after size: what `vitral bench` measures, as one file.

    python benchmarks/peers.py [--sizes s/16 b/16 l/16] [--batches 512 256 128] [--peers timm] [--rounds 12] [--quick] [--out peers.json]

Contestants take turns within a run, eager and (on a GPU) compiled. A library that is not installed is named and left out, and so is one
that cannot do an action. `--out` takes up what is there already, so that sizes may be measured one command after the other, and is written
after each action. Compiling takes most of the time (12 blocks of a peer about a minute and a half in all): `--peers`, `--actions` and
`--compile no` leave parts out. `--quick`: two blocks of ti/16 at batch 2, to see whether it runs. `docs/results/speed.md` is made from the
files under results/measured (`make results`).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from vitral.study.bench import ACTIONS, START, Bench, bench
from vitral.study.peers import PEERS

SIZES = {"s/16": 512, "b/16": 256, "l/16": 128}
"""With the images of a training step."""
QUICK: dict[str, Any] = {"rounds": 3, "depth": 2}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+")
    parser.add_argument("--batches", nargs="+", type=int)
    parser.add_argument("--peers", nargs="+", choices=[peer.name for peer in PEERS])
    parser.add_argument("--actions", nargs="+", choices=ACTIONS, default=ACTIONS)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", choices=["auto", "yes", "no"], default="auto")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    sizes = asked.sizes or (["ti/16"] if asked.quick else list(SIZES))
    batches = asked.batches or [2 if asked.quick else SIZES.get(size, 256) for size in sizes]
    if len(batches) != len(sizes):
        parser.error(f"{len(sizes)} sizes and {len(batches)} batches")
    found = {each["model"]: each for each in json.loads(asked.out.read_text())} if asked.out and asked.out.is_file() else {}
    settings = {"rounds": asked.rounds, **(QUICK if asked.quick else {})}
    actions = [action for action in asked.actions if not (asked.quick and action == START)]
    compiled = {"auto": None, "yes": True, "no": False}[asked.compile]

    def keep(so_far: Bench) -> None:
        found[so_far.model] = so_far.to_dict()
        if asked.out:
            asked.out.write_text(json.dumps(list(found.values()), indent=2) + "\n")

    failed = 0
    for size, batch in zip(sizes, batches, strict=True):
        known = {"device": asked.device, "batch": batch, "peers": asked.peers, "actions": actions, "compiled": compiled}
        try:
            result = bench(size, **known, **settings, after_each=keep)
        except Exception as error:  # the sizes after it may do
            failed += 1
            print(f"{size} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            continue
        print(f"{result.model}\n{result.text()}\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
