"""Device augmentation against torchvision's, side by side: pictures per second on CIFAR-10-sized batches.

    python benchmarks/augment.py                    # both on the CPU
    python benchmarks/augment.py --device cuda

Both do the same work: uint8 32×32 RGB pictures in, augmented and normalised float batches on the device out.
torchvision: one picture at a time in DataLoader workers, PIL in, the usual transforms (for `strong`, RandAugment and RandomErasing
stand for our affine, colour and cutout operations, MixUp and CutMix are left out on both sides). Ours: the policy on whole batches.
Times are the median of --repeats rounds after a warm-up; a round of torchvision's is one epoch over --pictures pictures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from typing import Any

import numpy as np
import torch

from vitral.data.images.augment import Augment, policy
from vitral.data.images.preprocess import Preprocess
from vitral.data.keys import uniforms

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class Pictures(torch.utils.data.Dataset[Any]):
    """What a torchvision data set of small pictures does: array → PIL → transform."""

    def __init__(self, pixels: np.ndarray, transform: Any) -> None:
        self.pixels, self.transform = pixels, transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        return self.transform(Image.fromarray(self.pixels[index])), 0


def torchvision_speed(name: str, pixels: np.ndarray, batch_size: int, workers: int, device: torch.device, repeats: int) -> float:
    from torchvision import transforms

    extra = [transforms.RandAugment(num_ops=2)] if name == "strong" else []
    last = [transforms.RandomErasing(p=0.5, scale=(0.08, 0.08), ratio=(1.0, 1.0))] if name == "strong" else []
    move = [transforms.RandomCrop(32, padding=4, padding_mode="reflect"), transforms.RandomHorizontalFlip()]
    transform = transforms.Compose([*move, *extra, transforms.ToTensor(), transforms.Normalize(MEAN, STD), *last])
    loader = torch.utils.data.DataLoader(
        Pictures(pixels, transform),
        batch_size,
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
    )
    speeds: list[float] = []
    for _ in range(repeats + 1):
        began, seen = time.perf_counter(), 0
        for images, _ in loader:
            seen += len(images.to(device, non_blocking=True))
        _wait(device)
        speeds.append(seen / (time.perf_counter() - began))
    return statistics.median(speeds[1:])


def device_speed(name: str, pixels: np.ndarray, batch_size: int, device: torch.device, repeats: int) -> float:
    resident = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))).to(device)
    augment = Augment(policy(name), Preprocess((32, 32), 3, MEAN, STD), device, crop=True)
    speeds: list[float] = []
    for epoch in range(repeats + 1):
        order = torch.randperm(len(resident), device=device)
        _wait(device)
        began, steps = time.perf_counter(), len(resident) // batch_size
        for step in range(steps):
            u = uniforms((batch_size, augment.columns), device, 0, epoch, step)
            augment(resident[order[step * batch_size : (step + 1) * batch_size]], u)
        _wait(device)
        speeds.append(steps * batch_size / (time.perf_counter() - began))
    return statistics.median(speeds[1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--pictures", type=int, default=10_240)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--policies", nargs="+", default=["standard", "strong"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    pixels = np.random.default_rng(0).integers(0, 256, (options.pictures, 32, 32, 3), dtype=np.uint8)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()}, {torch.get_num_threads()} threads"
    rows: list[dict[str, Any]] = []
    for name in options.policies:
        ours = device_speed(name, pixels, options.batch_size, device, options.repeats)
        theirs = torchvision_speed(name, pixels, options.batch_size, options.workers, device, options.repeats)
        rows.append({"policy": name, "vitral": round(ours), "torchvision": round(theirs), "ratio": round(ours / theirs, 1)})
    if options.json:
        print(json.dumps({"device": where, "workers": options.workers, "torch": torch.__version__, "rows": rows}, indent=2))
        return
    print(
        f"{where}; torchvision with {options.workers} workers; torch {torch.__version__}; batch {options.batch_size}; pictures per second"
    )
    print(f"{'policy':<12} {'vitral':>12} {'torchvision':>12} {'ratio':>7}")
    for row in rows:
        print(f"{row['policy']:<12} {row['vitral']:>12,} {row['torchvision']:>12,} {row['ratio']:>6.1f}×")


if __name__ == "__main__":
    main()
