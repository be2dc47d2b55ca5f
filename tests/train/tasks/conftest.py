"""What the tests of tasks share: a model whose logits are given."""

from __future__ import annotations

import torch
from torch import nn


class Table(nn.Module):
    """Logits that do not depend on the picture."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits


LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.0, 0.0]])
LABELS, LABELS_B = torch.tensor([0, 2]), torch.tensor([1, 1])
IMAGES = torch.zeros(2, 1, 2, 2)
