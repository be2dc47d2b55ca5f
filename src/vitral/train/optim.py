"""What learns, how fast, and by which rule.

`choose` says which parameters learn, `groups` gives each its learning rate and decay, `Optimizer` steps them all: AdamW or SGD, or Muon
for the matrices of the blocks and the filters of convolutions and AdamW for the rest. The learning rate is a tensor on the device,
so that changing it neither recompiles nor waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitral.base.errors import ConfigError
from vitral.config import TrainConfig
from vitral.model.lora import add_lora, is_lora
from vitral.train.ema import local

HEADS = ("head.", "distillation_head.", "network.fc.")
BLOCK = re.compile(r"^blocks\.(\d+)\.")
_STAGE = re.compile(r"^(?:network\.layer|stages\.)(\d+)")
_MATRICES = re.compile(r"^(?:blocks\.|stages\.|hidden\.|stem\.[1-9]|network\.layer)")
"""Where Muon's matrices are: between the first layer, which reads pixels, and the last, which answers."""
_PIXEL_CHANNELS = 4
"""Filters on at most so many channels look at pixels."""
FIRST = ("patches.", "patch_norm.", "tokens.", "positions.", "rotary.", "embedding_norm.", "stem.", "network.conv1", "network.bn1")
"""Before the first block."""
_NO_DECAY = re.compile(r"tokens\.|positions\.|rotary\.|pool\.(query|probe)$|.*\.relative\.table$")
"""Two axes or more, but no matrix and no filter."""


# ---- which parameters learn ----------------------------------------------------------------------------------------------------


def choose(model: nn.Module, config: TrainConfig) -> dict[str, nn.Parameter]:
    """The parameters that learn, by name; all others are frozen. A choice that matches nothing is an error. LoRA's are put in here."""
    tune, learns = config.tune, _TUNE[config.tune]
    if tune == "lora":
        add_lora(model, config.lora_where, config.lora_rank, config.lora_alpha, config.seed)
    chosen = {name: parameter for name, parameter in model.named_parameters() if learns(name)}
    beyond_head = [name for name in chosen if not is_head(name)]
    if not chosen or (tune == "attention" and not beyond_head):
        raise ConfigError(
            f"tune = {tune} matches no parameter of this {type(model).__name__}", "use tune = all or head" if chosen else "use tune = all"
        )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in chosen)
    return chosen


def is_head(name: str) -> bool:
    return name.startswith(HEADS)


def is_attention(name: str) -> bool:
    return ".attention." in name or name.startswith("pool.")


_TUNE: dict[str, Callable[[str], bool]] = {
    "all": lambda _: True,
    "attention": lambda name: is_attention(name) or is_head(name),
    "head": is_head,
    "lora": lambda name: is_lora(name) or is_head(name),
}


# ---- learning rates and decay -----------------------------------------------------------------------------------------------------------


def _depth_of(name: str, depth: int) -> int:
    """0: embedding; 1 … depth: blocks; depth + 1: everything after them."""
    if match := BLOCK.match(name):
        return int(match[1]) + 1
    if match := _STAGE.match(name):
        return min(depth, int(match[1]))
    if name.startswith(FIRST):
        return 0
    return depth + 1


def _decays(name: str, parameter: Tensor) -> bool:
    """Weight decay is for matrices and filters: not for biases, norms, tokens and positions."""
    return parameter.ndim >= 2 and not _NO_DECAY.match(name)


def _is_matrix(name: str, parameter: Tensor) -> bool:
    """Whether Muon moves it: a matrix, or the filters of a convolution as one, a row for each filter; not filters on bare pixels."""
    if _NO_DECAY.match(name) or is_lora(name):
        return False
    return bool(_MATRICES.match(name)) and (parameter.ndim == 2 or (parameter.ndim == 4 and parameter.shape[1] > _PIXEL_CHANNELS))


@dataclass(frozen=True)
class _Group:
    """Parameters that share a rule, a learning rate and a decay."""

    rule: str
    lr: float
    weight_decay: float
    names: tuple[str, ...]


def groups(parameters: dict[str, nn.Parameter], config: TrainConfig, depth: int) -> list[_Group]:
    """Every learning parameter in exactly one group."""
    members: dict[tuple[str, float, float], list[str]] = {}
    for name, parameter in parameters.items():
        muon = config.optimizer == "muon" and _is_matrix(name, parameter)
        rule = "muon" if muon else "sgd" if config.optimizer == "sgd" else "adamw"
        peak = config.adam_lr if config.optimizer == "muon" and not muon else config.lr
        scale = config.layer_decay ** (depth + 1 - _depth_of(name, depth))
        decay = config.weight_decay if _decays(name, parameter) else 0.0
        members.setdefault((rule, peak * scale, decay), []).append(name)
    return [_Group(rule, lr, decay, tuple(names)) for (rule, lr, decay), names in members.items()]


# ---- Muon ----------------------------------------------------------------------------------------------------------------------


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest (half-)orthogonal matrices, roughly, by five Newton–Schulz steps on all of them at once. (N, rows, columns)"""
    flipped = matrices.size(-2) > matrices.size(-1)
    x = matrices.mT if flipped else matrices
    x = x.bfloat16() if matrices.is_cuda else x
    x = x / (torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):  # x ← 3.4445 x + (−4.7750 a + 2.0315 a²) x with a = x xᵀ, the sums inside the products
        a = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(a, a, a, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return (x.mT if flipped else x).to(matrices.dtype)


def parts_of(name: str, swiglu: bool) -> int:
    """How many matrices a stored matrix really is: queries, keys and values are stacked, and so are swiglu's gate and value."""
    if name.endswith("attention.qkv.weight"):
        return 3
    return 2 if swiglu and name.endswith("mlp.expand.weight") else 1


def muon_update(gradients: list[Tensor], momenta: list[Tensor], parts: int, momentum: float) -> list[Tensor]:
    """Nesterov momentum, then orthogonalisation, of matrices of one shape; the momenta move on in place."""
    torch._foreach_lerp_(momenta, gradients, 1 - momentum)
    ahead = torch.stack(torch._foreach_lerp(gradients, momenta, momentum))  # (N, rows, columns)
    number, rows, columns = ahead.shape
    update = orthogonal(ahead.reshape(number * parts, rows // parts, columns))
    update = update * max(1.0, rows / parts / columns) ** 0.5
    return list(update.reshape(number, rows, columns).unbind(0))


class Muon(torch.optim.Optimizer):
    """Muon over batches of equal shapes.

    torch.optim.Muon goes through its matrices one by one: a ViT of depth 8 has 32 of them, and five Newton–Schulz steps of three
    small products each are then launches, not arithmetic. It also takes the fused qkv matrix for one matrix. Here all matrices of
    a shape are stacked, and the stacked ones inside them (q, k, v; swiglu's gate and value) are orthogonalised each on its own.
    """

    def __init__(self, groups: list[dict[str, Any]], momentum: float) -> None:
        super().__init__(groups, {"lr": 0.0, "weight_decay": 0.0})
        self.momentum = momentum

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # noqa: ARG002 (torch's signature)
        for group in self.param_groups:
            shapes: dict[tuple[torch.Size, int], list[nn.Parameter]] = {}
            for parameter, parts in zip(group["params"], group["parts"], strict=True):
                if parameter.grad is not None:
                    shapes.setdefault((parameter.shape, parts), []).append(parameter)
            for (_, parts), parameters in shapes.items():
                self._step_shape(parameters, parts, group["lr"], group["weight_decay"])

    def _step_shape(self, parameters: list[nn.Parameter], parts: int, lr: Tensor | float, decay: float) -> None:
        for parameter in parameters:
            if "momentum" not in self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(whole(parameter), memory_format=torch.contiguous_format)
        momenta = [self.state[parameter]["momentum"].flatten(1) for parameter in parameters]  # filters become rows
        gradients = [whole(parameter.grad).contiguous().flatten(1) for parameter in parameters]  # type: ignore[union-attr]
        updates = [update.view(parameters[0].shape) for update in muon_update(gradients, momenta, parts, self.momentum)]
        shards = [_shard_like(update, parameter) for update, parameter in zip(updates, parameters, strict=True)]
        targets = [local(parameter) for parameter in parameters]
        if decay:
            torch._foreach_mul_(targets, 1 - lr * decay)  # type: ignore[arg-type]
        torch._foreach_mul_(shards, -lr)  # type: ignore[arg-type, operator]
        torch._foreach_add_(targets, shards)


def whole(value: Tensor) -> Tensor:
    """A sharded matrix, gathered: orthogonality is a property of the whole matrix."""
    value = value.detach()
    return value.full_tensor() if hasattr(value, "full_tensor") else value  # type: ignore[operator]


def _shard_like(update: Tensor, parameter: Tensor) -> Tensor:
    """This process's part of a whole update."""
    if not hasattr(parameter, "device_mesh"):
        return update
    from torch.distributed.tensor import DTensor, Replicate

    mesh, placements = parameter.device_mesh, parameter.placements  # type: ignore[attr-defined]
    copies = DTensor.from_local(update, mesh, [Replicate()] * mesh.ndim)
    return copies.redistribute(mesh, placements).to_local().clone()


# ---- all of it together --------------------------------------------------------------------------------------------------------


class Optimizer:
    """All rules of a run behind `set_lr`, `step` and `state`."""

    def __init__(
        self,
        model: nn.Module,
        config: TrainConfig,
        depth: int,
        device: torch.device,
        recorded: bool = False,
        parameters: dict[str, nn.Parameter] | None = None,
    ) -> None:
        """`parameters`: what may learn, where that is more than the model."""
        every = dict(model.named_parameters()) if parameters is None else parameters
        named = {name: parameter for name, parameter in every.items() if parameter.requires_grad}
        self.groups = groups(named, config, depth)
        self.names = {parameter: name for name, parameter in named.items()}
        swiglu = getattr(getattr(model, "config", None), "activation", "") == "swiglu"

        def rows(rule: str) -> list[dict[str, Any]]:
            made = []
            for group in self.groups:
                if group.rule == rule:
                    row: dict[str, Any] = {"params": [named[name] for name in group.names], "weight_decay": group.weight_decay}
                    row["lr"] = torch.tensor(group.lr, device=device)
                    if rule == "muon":
                        row["parts"] = [parts_of(name, swiglu) for name in group.names]
                    made.append(row)
            return made

        self.rules: list[torch.optim.Optimizer] = []
        if rows_of := rows("adamw"):
            self.rules.append(torch.optim.AdamW(rows_of, betas=config.betas, fused=True, capturable=recorded))
        if rows_of := rows("sgd"):
            self.rules.append(torch.optim.SGD(rows_of, momentum=config.momentum, nesterov=config.momentum > 0, fused=True))
        if rows_of := rows("muon"):
            self.rules.append(Muon(rows_of, config.momentum))
        self._rows = [(row, float(row["lr"])) for rule in self.rules for row in rule.param_groups]

    def set_lr(self, factor: float) -> None:
        """Set every group's learning rate to factor × its peak, in place: no recompilation, no wait for the device."""
        for row, peak in self._rows:
            row["lr"].fill_(peak * factor)

    def step(self) -> None:
        for rule in self.rules:
            rule.step()

    def clear(self) -> None:
        for rule in self.rules:
            rule.zero_grad(set_to_none=True)

    def forget(self) -> None:
        """All moments as before the first step; in place, because a recorded step knows them by their address."""
        for value in self.state().values():
            value.zero_()

    def state(self) -> dict[str, Tensor]:
        """Moments by `parameter name/moment`."""
        return {
            f"{self.names[parameter]}/{key}": value  # type: ignore[index]
            for rule in self.rules
            for parameter, moments in rule.state.items()
            for key, value in moments.items()
            if isinstance(value, Tensor)
        }

    def load(self, state: dict[str, Tensor]) -> None:
        """Take over moments written by `state`, exactly."""
        owner = {
            self.names[parameter]: (rule, parameter) for rule in self.rules for row in rule.param_groups for parameter in row["params"]
        }
        for key, value in state.items():
            name, moment = key.rsplit("/", 1)
            rule, parameter = owner[name]
            moments = rule.state[parameter]
            if moment in moments:
                moments[moment].copy_(value)
            else:
                moments[moment] = value


def clip(parameters: Iterable[nn.Parameter], limit: float) -> Tensor:
    """Scale the gradients down to `limit`; returns their norm before, on the device (whole, also when sharded)."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # type: ignore[operator]
