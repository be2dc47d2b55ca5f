"""Look inside a model: what it predicts, where it looks, and what the prediction rests on."""

from sklearn.datasets import load_sample_image

import vitral
from vitral import look

vitral.save(vitral.create("tiny", image_size=64, patch_size=8), "tiny")  # untrained: put your own run or weights in its place
model = vitral.load("tiny")  # also "runs/demo", "vit.safetensors", "timm:vit_tiny_patch16_224"
photo = load_sample_image("flower.jpg")
tape = vitral.watch(model, vitral.open_picture(photo, model))
for method in (look.attention, look.rollout, look.relevance, look.occlusion):
    heat = method(tape)
    print(f"{heat.title:<40} strongest at patch {heat.peak}  {heat.note}")
    heat.overlay().save(f"{heat.method}.png")
