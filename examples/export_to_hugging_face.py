"""Write a model for transformers, read it there, and get the same answer."""

import torch
from transformers import ViTForImageClassification

import vitral

model = vitral.create("tiny").eval()
folder = vitral.export(model, "exported", format="hf")  # also timm, torchvision, npz, onnx
theirs = ViTForImageClassification.from_pretrained(folder).eval()
images = torch.rand(2, 3, 32, 32)
with torch.no_grad():
    difference = (theirs(images).logits - model(images)).abs().max()
print(f"written to {folder}; largest difference of the logits {difference:.1e}")
assert difference < 1e-4
