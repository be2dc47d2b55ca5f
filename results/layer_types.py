"""R3's table I, timed: what one layer of each kind costs as tokens (n) and width (d) grow: python results/layer_types.py

Four layers by themselves, no projections: self-attention (softmax(qkᵀ/√d)·v, weights formed), recurrent (h ← tanh(W·h + x), one token
after another), convolution (kernel 3 over a row of tokens), restricted self-attention (each token sees 9 neighbours). Each is timed at
every n (width fixed) and every d (tokens fixed); the exponent is the slope on logarithms over all of them.
Writes layer-types.json and the pictures beside the other results.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitral.base.device import describe_machine
from vitral.base.files import read_json, write_json
from vitral.base.text import table
from vitral.draw.curves import Line, line_chart
from vitral.draw.provenance import save_figure

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs/images/results"
TOKENS, WIDTHS = (128, 256, 512, 1024, 2048), (64, 128, 256, 512, 1024)
FIXED_WIDTH, FIXED_TOKENS = 64, 256
KERNEL, NEIGHBOURS = 3, 9
EXPECTED = {"self-attention": (2, 1), "recurrent": (1, 2), "convolution": (1, 2), "restricted self-attention": (1, 1)}
"""Exponents of n and d in the table."""


def self_attention(n: int, d: int, device: str) -> Callable[[], Tensor]:
    q, k, v = torch.randn(3, n, d, device=device)
    return lambda: torch.softmax(q @ k.T / math.sqrt(d), dim=-1) @ v


def recurrent(n: int, d: int, device: str) -> Callable[[], Tensor]:
    inputs, weight = torch.randn(n, d, device=device), torch.randn(d, d, device=device) / math.sqrt(d)

    def run() -> Tensor:
        state = inputs.new_zeros(d)
        for one in inputs:
            state = torch.tanh(torch.mv(weight, state) + one)
        return state

    return run


def convolution(n: int, d: int, device: str) -> Callable[[], Tensor]:
    inputs, weight = torch.randn(1, d, n, device=device), torch.randn(d, d, KERNEL, device=device)
    return lambda: torch.nn.functional.conv1d(inputs, weight, padding=KERNEL // 2)


def restricted(n: int, d: int, device: str) -> Callable[[], Tensor]:
    half = NEIGHBOURS // 2
    q, k, v = torch.randn(3, n, d, device=device)
    near = (torch.arange(n, device=device)[:, None] + torch.arange(-half, half + 1, device=device)).clamp(0, n - 1)  # (n, r)

    def run() -> Tensor:
        weights = torch.softmax((k[near] @ q[..., None])[..., 0] / math.sqrt(d), dim=-1)  # (n, r)
        return (weights[:, None] @ v[near])[:, 0]

    return run


LAYERS = {
    "self-attention": self_attention,
    "recurrent": recurrent,
    "convolution": convolution,
    "restricted self-attention": restricted,
}


def seconds(action: Callable[[], Tensor], device: str, least: float) -> float:
    """The quickest tenth of repeated runs; on a CPU of this thread's own time, which others on the machine hardly change."""
    clock = time.thread_time if device == "cpu" else time.perf_counter
    times: list[float] = []
    begin = clock()
    while len(times) < 5 or clock() - begin < least:
        start = clock()
        action()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(clock() - start)
    return float(np.quantile(times, 0.1))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=0.3, help="of repeating each measurement")
    parser.add_argument("--fit", action="store_true", help="fit and draw again what was measured before")
    parser.add_argument("--out", type=Path, default=HERE / "layer-types.json")
    flags = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    grids = {"tokens": [(n, FIXED_WIDTH) for n in TOKENS], "width": [(FIXED_TOKENS, d) for d in WIDTHS]}
    measured: dict[str, dict[str, list[float]]] = read_json(flags.out)["milliseconds"] if flags.fit else {}
    for name, make in LAYERS.items() if not flags.fit else ():
        timed = {axis: [seconds(make(n, d, flags.device), flags.device, flags.seconds) for n, d in grid] for axis, grid in grids.items()}
        measured[name] = {axis: [1e3 * each for each in times] for axis, times in timed.items()}
    fits = {name: {axis: exponent(ends, measured[name][axis]) for axis, ends in (("tokens", TOKENS), ("width", WIDTHS))} for name in LAYERS}
    values = {
        "tokens": TOKENS, "width": WIDTHS, "fixed": {"width": FIXED_WIDTH, "tokens": FIXED_TOKENS},
        "milliseconds": measured, "exponents": fits, "expected": EXPECTED, "device": flags.device, "machine": describe_machine(),
    }  # fmt: skip
    write_json(flags.out, values)
    for axis, ends in (("tokens", TOKENS), ("width", WIDTHS)):
        lines = [Line(ends, measured[name][axis], f"{name}: {axis}^{fits[name][axis]:.2f}") for name in LAYERS]
        fixed = f"width {FIXED_WIDTH}" if axis == "tokens" else f"{FIXED_TOKENS} tokens"
        figure = line_chart(lines, x=axis, y="milliseconds of one layer", title=f"One layer, {fixed}", log_x=True, log_y=True)
        save_figure(figure, PICTURES / f"layer-types-{axis}", {}, {"command": "python results/layer_types.py"}, formats=("png",))
    rows = [
        [name, f"n^{n} d^{d}", f"{fits[name]['tokens']:.2f}", f"{fits[name]['width']:.2f}", f"{measured[name]['tokens'][-1]:.3g}"]
        for name, (n, d) in EXPECTED.items()
    ]
    print(table(rows, ["layer", "table I", "measured, n", "measured, d", f"ms at n = {TOKENS[-1]}, d = {FIXED_WIDTH}"], "ll"))


if __name__ == "__main__":
    main()
