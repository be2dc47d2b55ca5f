"""Tables of speed, of int8 and of fp8, from what benchmarks and proofs wrote."""

from __future__ import annotations

from typing import Any

from evidence import HERE, MEASURED

from vitral.base.files import read_json
from vitral.base.text import NOTHING, byte_size, percent, table

OURS, NOT_ASKED = "vitral", "not asked for"
"""As benchmarks/peers.py names them in its records."""
SAME = "≈"
QUANTISED = HERE / "quantised"
"""proof.json of each quantised model that is published."""
ON_GPU, ON_CPU = ("b/16", "cuda"), ("ti/16", "cpu")
SHORT = (
    ("peers", *ON_GPU, "training step", "compiled"),
    ("peers", *ON_GPU, "inference", "compiled"),
    ("peers-eager", *ON_GPU, "rollout of one", "eager"),
    ("peers-cpu", *ON_CPU, "training step", "eager"),
    ("peers-cpu", *ON_CPU, "inference", "eager"),
    ("peers-cpu", *ON_CPU, "all attention maps", "eager"),
)
"""What the README shows of speed: file, model, device, action and mode. What Vitral is slower at is among them; inference of one image,
where a recorded pass is replayed, is on the page of speed with its compiled row."""
DIFFERENT = {
    ("cuda", "inference of one", "eager"): "Vitral replays a recorded pass",
    ("cpu", "inference", "eager"): "Vitral in bf16, {} in fp32",
    ("cpu", "inference of one", "eager"): "Vitral in bf16, {} in fp32",
}
"""Device, action and mode → in what the contestants differ beside their code."""


def quantised_table() -> str:
    """Every proof.json of quantised/, by its name: int8 beside fp32."""
    lines = []
    for path in sorted(QUANTISED.glob("*.json")):
        proof = read_json(path)
        by_name = {one["name"]: one for one in proof["versions"]}
        for name, one in by_name.items():
            speed = "" if one["speed"] is None else f"{one['speed']:.2f} × ({one['spread'][0]:.2f} to {one['spread'][1]:.2f})"
            whole = one["pictures"] == proof["pictures"]  # scores of fewer pictures cannot be set beside those of all
            scored = "" if one["top1"] is None or not whole else f"{100 * one['top1']:.2f} %"
            error = "" if one["calibration"] is None or not whole else f"{one['calibration']:.4f}"
            same, change = f"{100 * one['same']:.2f} %", f"{one['largest']:.3f}"
            size = f"{one['bytes'] / 1e6:.2f} MB"
            lines.append([path.stem, name, size, f"{one['pictures']:,}", same, scored, error, change, speed])
    header = [
        "model",
        "",
        "size",
        "pictures",
        "same answers",
        "top-1",
        "calibration error",
        "largest logit change",
        "speed (10 to 90 % of the rounds)",
    ]
    return table(lines, header, "llr", markdown=True)


def worst_layers_table() -> str:
    """The layers that hurt most, of every proof that tried them one by one."""
    lines = []
    for path in sorted(QUANTISED.glob("*.json")):
        for layer in read_json(path)["layers"][:8]:
            lines.append([path.stem, layer["name"], f"{layer['typical']:.4f}", f"{layer['largest']:.3f}", f"{100 * layer['share']:.1f} %"])
    return table(lines, ["model", "layer", "typical change of a logit", "largest", "share of the squares"], "llr", markdown=True)


def readme_speed_table() -> str:
    """Some of Vitral's times and timm's, and in words which is faster."""
    lines, rounds = [], set()
    for name, model, device, action, mode in SHORT:
        for run in read_json(MEASURED / f"{name}.json") if (MEASURED / f"{name}.json").is_file() else []:
            own = {row["contestant"]: row for row in run["rows"] if (row["action"], row["mode"]) == (action, mode)}
            if (run["model"], run["device"]) != (model, device) or "timm" not in own:
                continue
            ours, theirs = own[OURS], own["timm"]
            comparison = _beside(theirs).replace(SAME, "no difference shown")
            what = f"{'GPU' if device == 'cuda' else 'CPU'}: {action}" + (", compiled" if mode == "compiled" else "")
            what += " (bf16, timm in fp32)" if (device, action, mode) in DIFFERENT else ""
            lines.append([what, _took(ours), _took(theirs), comparison])
            rounds.add(run["rounds"])
    note = (
        "GPU: b/16 on one H200, bf16. CPU: ti/16 on two threads, fp32 unless the row names bf16. In brackets: 10 to 90 % of"
        f" {min(rounds, default=0)} to {max(rounds, default=0)} rounds."
    )
    return f"{table(lines, ['', 'Vitral', 'timm', 'Vitral is'], 'lrrl', markdown=True)}\n\n{note}"


def doing(device: str, action: str, mode: str, others: str) -> str:
    """`inference of one, eager (Vitral replays a recorded pass)`."""
    beside = DIFFERENT.get((device, action, mode), "").format(others)
    return f"{action}, {mode}" + (f" ({beside})" if beside else "")


def speed_table(name: str, flags: str = "") -> str:
    """Vitral beside other libraries out of measured/NAME.json by benchmarks/peers.py."""
    file = MEASURED / f"{name}.json"
    command = " ".join(["python benchmarks/peers.py", *flags.split(), f"--out results/measured/{file.name}"])
    if not file.is_file():
        return f"Not measured yet: `{command}`."
    runs = read_json(file)
    names = list(dict.fromkeys(row["contestant"] for run in runs for row in run["rows"]))
    lines = []
    for run in runs:
        kinds = dict.fromkeys((row["action"], row["mode"]) for row in run["rows"])
        for action, mode in kinds:
            own = {row["contestant"]: row for row in run["rows"] if (row["action"], row["mode"]) == (action, mode)}
            ours = own[names[0]]
            what = [run["model"], doing(run["device"], action, mode, "the others"), f"{ours['images']:,}", _took(ours)]
            share = percent(ours["share_of_peak"] or None, 0)
            memory = byte_size(ours["memory"]) if ours["memory"] else NOTHING
            lines.append([*what, *(_beside(own.get(name)) for name in names[1:]), share, memory])
    header = ["model", "", "images", "Vitral", *(f"Vitral is, beside {name}" for name in names[1:]), "of peak", "memory"]
    first, versions = runs[0], {name: version for run in runs for name, version in run["versions"].items()}
    gpu, threads, torch = (first["machine"][key] for key in ("gpu", "threads", "torch"))
    where = f"one {gpu.removeprefix('NVIDIA ')}, bf16" if first["device"] == "cuda" else f"{threads} CPU thread{'s' * (threads != 1)}"
    libraries = ", ".join(f"{name} {version}" for name, version in {"torch": torch.partition("+")[0], **versions}.items())
    note = (
        f"{where}, {libraries}; `{command}`, median of {first['rounds']} rounds in turn. 1.20 × faster: the other"
        " takes 1.20 times as long within a round. Slower: the other way round. In brackets 10 to 90 % of the rounds. ≈: the rounds differ"
        " by more than the two do."
    )
    parts = [table(lines, header, "llr", markdown=True), note]
    looks = [
        [run["model"], name, f"{middle:.2f} ({low:.2f} to {high:.2f})"]
        for run in runs
        for name, (middle, low, high) in run["looking"].items()
    ]
    parts.append(table(looks, ["model", "", "ratio (10 to 90 % of the rounds)"], "llr", markdown=True))
    absent = {f"- {run['model']}: {name} is absent: {why}" for run in runs for name, why in run["absent"].items() if why != NOT_ASKED}
    parts += ["\n".join(sorted(absent))] if absent else []
    return "\n\n".join(parts)


def fp8_table() -> str:
    """Ours in fp8 and in bf16 beside timm in bf16 out of measured/fp8.json, and what fp8 did to answers."""
    measured = read_json(MEASURED / "fp8.json")
    lines = [
        [row["size"], f"{row['pictures']:,}", row["contestant"], f"{row['milliseconds']:,.3g} ms", _times(row)]
        for row in measured["rows"]
        if row["contestant"] != "timm"
    ]
    ratios = table(lines, ["model", "images", "", "a pass", "it is, beside timm in bf16"], "lrl", markdown=True)
    answers = [
        [
            one["model"],
            one["data"],
            f"{one['pictures']:,}",
            percent(one["same_answer"]),
            *(_share(one.get(k)) for k in ("usual", "fp8")),
            one["device"],
        ]
        for one in measured["answers"]
    ]
    heads = ["weights", "photographs of", "pictures", "same answer", "right before", "right in fp8", "on"]
    return f"{ratios}\n\n{table(answers, heads, 'llr', markdown=True)}"


def _times(row: dict[str, Any]) -> str:
    return faster(row["timm_over_it"], row["low"], row["high"])


def _share(value: float | None) -> str:
    return percent(value)


def _took(row: dict[str, Any]) -> str:
    """Images a second of many, milliseconds or seconds of one."""
    if row["images"] > 1:
        return f"{row['images'] / row['seconds']:,.0f}/s"
    return f"{1e3 * row['seconds']:,.3g} ms" if row["seconds"] < 1 else f"{row['seconds']:,.3g} s"


def _beside(row: dict[str, Any] | None) -> str:
    """`1.39 × faster (1.38 to 1.41)`: Vitral, beside the one whose row this is."""
    if row is None:
        return NOTHING
    return faster(row["ratio"], *row["interval"]) if row["told"] else SAME


def faster(ratio: float, low: float, high: float) -> str:
    """The time of the other over Vitral's, in words that cannot be read the wrong way round."""
    if ratio < 1:
        return f"{1 / ratio:.2f} × slower ({1 / high:.2f} to {1 / low:.2f})"
    return f"{ratio:.2f} × faster ({low:.2f} to {high:.2f})"
