"""Tokens that belong to no patch, put before the patches: class, distillation, registers, in this order."""

from __future__ import annotations

import torch
from torch import nn


class PrependClassToken(nn.Module):
    """(B, N, D) → (B, prefix + N, D) with learned tokens in front."""

    def __init__(self, width: int, class_token: bool = True, distillation_token: bool = False, registers: int = 0) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, width)) if class_token else None
        self.distillation_token = nn.Parameter(torch.zeros(1, 1, width)) if distillation_token else None
        self.registers = nn.Parameter(torch.zeros(1, registers, width)) if registers else None

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        present: list[torch.Tensor] = [token for token in (self.class_token, self.distillation_token, self.registers) if token is not None]
        if not present:
            return patches
        prefix = torch.cat(present, dim=1).to(patches.dtype).expand(patches.shape[0], -1, -1)
        return torch.cat([prefix, patches], dim=1)  # (B, T, D)
