"""Bring a live timm model: its weights land in Vitral's ViT, and every block is compared with the original."""

import timm
import torch

import vitral

source = timm.create_model("vit_tiny_patch16_224", img_size=32, embed_dim=48, depth=3, num_heads=3, num_classes=10)
model = vitral.adopt(source)  # raises vitral.ParityError where a layer computes something else
for layer, difference in model.origin.parity.items():
    print(f"{layer:<12} largest relative difference {difference:.1e}")
images = torch.rand(2, 3, 32, 32)
print("same classes:", bool((model(images).argmax(1) == source.eval()(images).argmax(1)).all()))
print("assumed:", model.origin.assumptions() or "nothing")
