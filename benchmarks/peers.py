"""Vitral beside timm, torchvision, transformers and vit-pytorch, size after size: what `vitral bench` measures, as one file.

    python benchmarks/peers.py [--sizes s/16 b/16 l/16] [--batches 512 256 128] [--peers timm] [--rounds 12] [--quick] [--out peers.json]

Contestants take turns within a run, eager and (on a GPU) compiled. A library that is not installed is named and left out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from vitral.study.bench import bench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["s/16", "b/16", "l/16"])
    parser.add_argument("--batches", nargs="+", type=int, default=[512, 256, 128])
    parser.add_argument("--peers", nargs="+")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = []
    for size, batch in zip(asked.sizes, asked.batches, strict=False):
        settings = {"batch": 2, "rounds": 3, "start_up": False} if asked.quick else {"batch": batch, "rounds": asked.rounds}
        result = bench(size, device=asked.device, peers=asked.peers, **settings)
        print(f"{size}\n{result.text()}\n", flush=True)
        found.append(result.to_dict())
        if asked.out:  # after each size: a later one may not fit
            asked.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
