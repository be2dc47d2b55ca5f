"""vitral pretrain DATA: learn from images without labels."""

from __future__ import annotations

import json

from vitral.base.errors import UsageError
from vitral.base.progress import print_clean
from vitral.cli.train import parse, train

EXAMPLES = """Pre-train a Vision Transformer on images without labels. A linear probe and nearest neighbours then score the features on
validation, if the data has labels. No label is read before the run has ended.

Examples:
  vitral pretrain digits
  vitral pretrain folder:photos --seconds 600 --out runs/photos
  vitral pretrain cifar10 --method dino --seconds 600 --seed 1
  vitral pretrain cifar10 --set gaussian_weight=0.03 projection=128
  vitral pretrain folder:photos --from runs/photos --epochs 20  # longer
  vitral pretrain folder:photos --out runs/photos --resume
  vitral probe runs/photos folder:sorted
  vitral train finetune --from runs/photos --data folder:sorted
"""


def run(arguments: list[str]) -> int:
    config, values = parse(arguments, "pretrain", EXAMPLES)
    if values.get("test") and values.get("skip_probe"):
        raise UsageError("--test scores the probe that --skip-probe leaves out", "leave one of them out")
    result = train(config, values, ["vitral", "pretrain", *arguments])
    if result is None:
        return 0
    from vitral.study.learning import finish

    probe, text = finish(result, not values.get("skip_probe"), values.get("test", False), config.train.device, values.get("quiet", False))
    if values.get("json"):
        print(json.dumps({"path": str(result.path), **result.test, "probe": probe}))
    else:
        print_clean("\n".join([*text, str(result.path)]))
    return 0
