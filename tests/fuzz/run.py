"""make fuzz: thousands of damaged inputs, each in its own process with a deadline and 2 GB; a report of how they ended.

python tests/fuzz/run.py --cases 20000 --seed 1 --out fuzz.json
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.cases import Cases
from fuzz.confined import confined_each

SHARES = {"pictures": 0.3, "weights": 0.25, "configs": 0.2, "run folders": 0.1, "shards": 0.05, "web requests": 0.05, "label tables": 0.05}
BATCH = 25
"""Cases of one child; it ends with them, so that nothing they leave behind lasts."""
BAD = ("raw", "timeout", "memory", "died")


def fuzz(folder: Path, cases: int, seed: int, seconds: float = 20.0) -> tuple[dict[str, collections.Counter[str]], list[dict]]:
    """(endings by kind, the bad ones)."""
    made = Cases(folder, seed)
    counts: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in SHARES}
    bad: list[dict] = []
    for kind, share in SHARES.items():
        works = [made.case(kind, number) for number in range(max(1, round(cases * share)))]
        batches = [works[begin : begin + BATCH] for begin in range(0, len(works), BATCH)]
        endings = (ending for batch in batches for ending in confined_each(batch, seconds=seconds))
        for number, ending in enumerate(endings):
            counts[kind][ending.kind] += 1
            if ending.kind in BAD:
                bad.append({"kind": kind, "number": number, "ending": ending.kind, "message": ending.message})
                print(f"{kind} {number}: {ending.kind}: {ending.message}", flush=True)
    return counts, bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("fuzz.json"))
    flags = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        counts, bad = fuzz(Path(folder), flags.cases, flags.seed)
    took = time.monotonic() - began
    total = sum(sum(count.values()) for count in counts.values())
    flags.out.write_text(
        json.dumps({"cases": total, "seed": flags.seed, "seconds": round(took), "counts": counts, "bad": bad}, indent=2) + "\n"
    )
    for kind, count in counts.items():
        print(f"{kind:14}" + "".join(f"  {ending} {number:,}" for ending, number in sorted(count.items())))
    print(f"{total:,} cases in {took:.0f} s, {len(bad)} of them bad: {flags.out}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
