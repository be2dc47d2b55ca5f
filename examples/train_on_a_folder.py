"""Train on your own pictures: one folder per class. Size, channels and classes are adapted to them."""

from pathlib import Path

from PIL import Image

import vitral

for colour in ("crimson", "teal"):  # stand-ins for photographs
    folder = Path("photos") / colour
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(20):
        stripes = Image.linear_gradient("L").rotate(9 * number).convert("RGB").resize((24, 24))
        Image.blend(stripes, Image.new("RGB", (24, 24), colour), 0.5).save(folder / f"{number}.png")

run = vitral.fit(vitral.presets.run("digits", data=vitral.DataConfig(name="folder:photos"), epochs=4), out="runs/photos", quiet=True)
print(run.model.origin.classes.value, f"{run.test['accuracy']:.1%}")
