"""Peak memory of streamed rollout against a plain forward pass, ViT-L/16 at 384 pixels.

    python benchmarks/rollout_memory.py [--model l/16] [--size 384] [--batch 1] [--device auto]

Each way runs in its own process, so that peaks do not mix. On a CPU the peak is the process's resident memory (VmHWM), after
the model is built; on a GPU what torch allocated. Beside the whole peak stands what came on top of the weights.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

WAYS = ("forward", "rollout", "kept")
LIMIT = 1.3


def measure(way: str, name: str, size: int, batch: int, device: str) -> dict[str, float]:
    """Megabytes: before the pass, at its peak."""
    import torch

    from vitral.base.device import pick_device
    from vitral.build import create
    from vitral.look.rollout import rollout, watch_rollout
    from vitral.look.watch import watch

    place = pick_device(device)
    torch.manual_seed(0)
    with torch.no_grad():
        model = create(name, image_size=size).to(place).eval()
        images = torch.randn(batch, model.config.channels, size, size, device=place)
        model(images[:1, :, :, :])  # kernels load their own memory once
        before = _allocated(place)
        _reset(place)
        if way == "forward":
            model(images)
        elif way == "rollout":
            watch_rollout(model, images)
        else:
            rollout(watch(model, images))
    return {"before": before, "peak": _peak(place)}


def _reset(place) -> None:
    import torch

    if place.type == "cuda":
        torch.cuda.reset_peak_memory_stats(place)
    else:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # Linux: start the peak of resident memory anew


def _allocated(place) -> float:
    import torch

    return torch.cuda.memory_allocated(place) / 2**20 if place.type == "cuda" else _status("VmRSS")


def _peak(place) -> float:
    import torch

    return torch.cuda.max_memory_allocated(place) / 2**20 if place.type == "cuda" else _status("VmHWM")


def _status(field: str) -> float:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="l/16")
    parser.add_argument("--size", type=int, default=384)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.way:
        print(json.dumps(measure(asked.way, asked.model, asked.size, asked.batch, asked.device)))
        return 0
    found = {}
    for way in WAYS:
        command = [sys.executable, __file__, "--way", way, "--model", asked.model, "--size", str(asked.size)]
        command += ["--batch", str(asked.batch), "--device", asked.device]
        found[way] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    plain = found["forward"]["peak"]
    print(f"{asked.model} at {asked.size} px, batch {asked.batch}, device {asked.device}")
    names = {"forward": "plain forward", "rollout": "streamed rollout", "kept": "rollout, all attention kept"}
    for way, one in found.items():
        print(f"  {names[way]:<28} peak {one['peak']:8.0f} MB  on top {one['peak'] - one['before']:7.0f} MB  {one['peak'] / plain:.3f} ×")
    within = found["rollout"]["peak"] <= LIMIT * plain
    print(f"  streamed rollout {'is' if within else 'IS NOT'} within {LIMIT} × of the plain pass")
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
