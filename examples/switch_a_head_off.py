"""Switch attention heads off, one by hand and all in turn, and see what the model loses."""

import torch

import vitral

torch.manual_seed(0)
model = vitral.create("tiny")
images = torch.rand(1, 3, 32, 32)


def without_head_two(heads: torch.Tensor, _name: str) -> torch.Tensor:  # (B, heads, T, d)
    return heads * torch.tensor([1.0, 1.0, 0.0]).view(1, -1, 1, 1)


whole = vitral.watch(model, images)
cut = vitral.watch(model, images, edits={"blocks.1.attention.heads": without_head_two})
print("logits move by at most", f"{(cut.logits - whole.logits).abs().max():.4f}")
print("each head of each block in turn:\n", vitral.look.ablate(whole).heads.round(4))
