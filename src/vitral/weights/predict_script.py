"""Beside an exported file: what its images must be and what its classes are called, and a script that does exactly that.

The script needs Pillow and NumPy alone (and onnxruntime for an ONNX file): a file that leaves Vitral keeps its preprocessing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vitral.base.files import write_atomic, write_json
from vitral.base.origin import per_channel
from vitral.model.classifier import Classifier

SETTINGS = "preprocess.json"
SCRIPT = "predict.py"

HEAD = '''"""The exact preprocessing of the model beside this file: python predict.py PICTURE …

prepare(image) makes a PIL image the float32 array (1, C, H, W) that the model takes. Needs Pillow and NumPyNEEDS.
"""

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

HERE = Path(__file__).parent
SETTINGS = json.loads((HERE / "preprocess.json").read_text(encoding="utf-8"))


def prepare(image):
    image = ImageOps.exif_transpose(image)
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:  # on white
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("L" if SETTINGS["channels"] == 1 else "RGB")
    height, width = SETTINGS["image_size"]
    how = Image.Resampling[SETTINGS["interpolation"].upper()]
    if SETTINGS["resize"] == "squash":
        image = image if image.size == (width, height) else image.resize((width, height), how)
    elif image.size != (width, height) or SETTINGS["crop"] != 1:
        tall, wide = int(height / SETTINGS["crop"] + 1e-9), int(width / SETTINGS["crop"] + 1e-9)
        if tall * image.width >= wide * image.height:
            wide = max(wide, tall * image.width // image.height)
        else:
            tall = max(tall, wide * image.height // image.width)
        left, top = round((wide - width) / 2), round((tall - height) / 2)
        image = image.resize((wide, tall), how).crop((left, top, left + width, top + height))
    pixels = np.asarray(image, np.float32).reshape(height, width, -1).transpose(2, 0, 1) / np.float32(255)
    mean, std = (np.array(SETTINGS[name], np.float32).reshape(-1, 1, 1) for name in ("mean", "std"))
    return ((pixels - mean) / std)[None]
'''
RUN = """

if __name__ == "__main__":
    import onnxruntime

    session = onnxruntime.InferenceSession(str(HERE / "model.onnx"), providers=["CPUExecutionProvider"])
    for name in sys.argv[1:]:
        (logits,) = session.run(["logits"], {"images": prepare(Image.open(name))})
        names, thresholds = SETTINGS["class_names"], SETTINGS["thresholds"]
        if thresholds:  # several labels: every class from its own threshold on
            shares = 1 / (1 + np.exp(-logits[0]))
            best = [i for i in np.argsort(-shares) if shares[i] >= thresholds[i]]
        else:
            shares = np.exp(logits[0] - logits[0].max())
            shares /= shares.sum()
            best = np.argsort(-shares)[:5]
        print(name, ", ".join(f"{names[i] if i < len(names) else i} {100 * shares[i]:.1f} %" for i in best))
"""


def settings(model: Classifier) -> dict[str, Any]:
    """What a stranger must know to use the model: image size, normalisation, resizing, class names; of several labels their thresholds."""
    config, origin = model.config, model.origin
    return {
        "image_size": list(config.image_size),
        "channels": config.channels,
        "mean": list(per_channel(origin.mean.value, config.channels)),
        "std": list(per_channel(origin.std.value, config.channels)),
        "resize": origin.resize.value,
        "crop": origin.crop.value,
        "interpolation": origin.interpolation.value,
        "class_names": list(origin.classes.value),
        "thresholds": list(origin.thresholds),
        "assumed": origin.assumptions(),
    }


def metadata(model: Classifier) -> dict[str, str]:
    """The same for a file's own metadata, which holds texts."""
    return {f"vitral.{name}": json.dumps(value) for name, value in settings(model).items()}


def write_predict_script(model: Classifier, folder: Path, runs: bool) -> None:
    """`runs`: the script can also run the model, because it is an ONNX file. Other than 1 or 3 channels have no PIL image to start from."""
    write_json(folder / SETTINGS, settings(model))
    if model.config.channels in (1, 3):
        write_atomic(folder / SCRIPT, HEAD.replace("NEEDS", ", and onnxruntime to run it" if runs else "") + (RUN if runs else ""))
