"""A Mac's GPU for machines that have none. The CPU computes; what Apple's GPU or PyTorch's code for it refuses is refused here too.

Refused: 64-bit floats on the GPU, operands on two devices, NumPy arrays of its tensors, operators without a kernel for it (by the table
that PyTorch is built from), and four things that PyTorch 2.9 cannot do there. The numbers are the CPU's: wrong numbers, slowness and lack
of memory do not show.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torchgen
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import return_and_correct_aliasing

TABLE = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
GPU = torch.device("mps", 0)
MEMORY = 8 << 30
NO_KERNEL = "The operator '{}' is not currently implemented for the MPS device. If you want this op to be considered for addition, write."
NO_DOUBLE = "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32 instead."
NO_NUMPY = "can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
TWO_DEVICES = "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu! ({})"
FREED = "a copy to Apple's GPU that does not wait may read memory that was given to others (pytorch#189690)"

aten = torch.ops.aten
COPIES = (aten.copy_.default,)
INDEXED = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)
"""The GPU's tensors may be indexed by the host's, not the other way round."""


# ---- PyTorch's own table of operators --------------------------------------------------------------------------------------------


@functools.cache
def kernels() -> dict[str, str]:
    """Operator and overload → the keys that have a kernel, or whose kernel it borrows as `=NAME`."""
    found = {}
    for entry in re.split(r"^- func: ", TABLE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        borrowed = re.search(r"^  structured_delegate: (\S+)", entry, re.MULTILINE)
        dispatch = re.search(r"^  dispatch:\n((?:    .*\n|\s*#.*\n)+)", entry, re.MULTILINE)
        keys = ",".join(re.findall(r"^    ([\w, ]+):", dispatch[1], re.MULTILINE)) if dispatch else "CompositeImplicitAutograd"
        found[entry.partition("(")[0]] = f"={borrowed[1]}" if borrowed else keys
    return found


@functools.cache
def has_kernel(name: str) -> bool:
    """Whether Apple's GPU can run it: by its own kernel, or as other operators. What the table does not list was generated from others."""
    keys = kernels().get(name.removesuffix(".default"), "Composite")
    return has_kernel(keys[1:]) if keys.startswith("=") else "MPS" in keys or "Composite" in keys


@functools.cache
def name_of(operator: Any) -> str:
    return f"{operator._schema.name.removeprefix('aten::')}.{operator._overloadname}"


# ---- the tensor ------------------------------------------------------------------------------------------------------------------


class OnGPU(torch.Tensor):
    """A tensor of the host that says it is on the GPU."""

    host: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    device = property(lambda _: GPU)  # type: ignore[assignment]
    is_mps = property(lambda _: True)  # type: ignore[assignment]
    is_cpu = property(lambda _: False)  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> OnGPU:
        shape, layout = host.size(), {"strides": host.stride(), "storage_offset": host.storage_offset()}
        made = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=host.dtype, device=host.device, **layout)  # type: ignore[attr-defined]
        made.host = host
        return made

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        check(operator, args, kwargs)
        made = operator(*taken_off(args), **taken_off(kwargs))
        if operator in COPIES and not isinstance(args[0], OnGPU):
            return args[0]
        if any(is_wide(each.dtype) for each in tensors(made)):
            raise TypeError(NO_DOUBLE)
        return return_and_correct_aliasing(operator, args, kwargs, put_on(made))

    def cpu(self, *_: Any, **__: Any) -> torch.Tensor:
        return ToHost.apply(self)  # type: ignore[return-value]

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return moved(self, args, kwargs)

    def numpy(self, *_: Any, force: bool = False) -> Any:
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(NO_NUMPY)

    def __array__(self, *_: Any) -> Any:
        raise TypeError(NO_NUMPY)

    def tolist(self) -> Any:
        return self.host.detach().tolist()

    def __repr__(self, **_: Any) -> str:
        return f"{self.host!r} on {GPU}"


class ToGPU(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, value: torch.Tensor) -> torch.Tensor:
        return OnGPU(value.detach().clone())

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return taken_off(gradient)


class ToHost(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, value: OnGPU) -> torch.Tensor:
        return value.host.detach().clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return put_on(gradient)


def mapped(change: Callable[[torch.Tensor], Any], values: Any) -> Any:
    """`change` of every tensor in lists, tuples and dictionaries."""
    if isinstance(values, torch.Tensor):
        return change(values)
    if isinstance(values, list | tuple):
        return type(values)([mapped(change, each) for each in values])
    return {key: mapped(change, each) for key, each in values.items()} if isinstance(values, dict) else values


def tensors(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    mapped(found.append, values)
    return found


def taken_off(values: Any) -> Any:
    return mapped(lambda each: each.host if isinstance(each, OnGPU) else each, values)


def put_on(values: Any) -> Any:
    return mapped(lambda each: each if isinstance(each, OnGPU) else OnGPU(each), values)


def is_wide(dtype: Any) -> bool:
    return dtype in (torch.float64, torch.complex128)


def is_gpu(device: Any) -> bool:
    return isinstance(device, str | torch.device) and torch.device(device).type == "mps"


def moved(value: torch.Tensor, args: Any, kwargs: Any) -> torch.Tensor:
    """`value.to(…)` between host and GPU, or from one dtype to another."""
    copy = kwargs.pop("copy", False)
    if args and isinstance(args[0], torch.Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    device, dtype, waits_not, memory_format = torch._C._nn._parse_to(*args, **kwargs)  # type: ignore[attr-defined]
    onto, there = is_gpu(device), isinstance(value, OnGPU)
    if waits_not and onto and not there:
        raise AssertionError(FREED)
    if device is not None and not onto and there:  # the GPU converts before it copies
        value = value.cpu() if dtype is None or is_wide(dtype) else value.type(dtype).cpu()
        there = False
    if is_wide(value.dtype if dtype is None else dtype) and (onto or there):
        raise TypeError(NO_DOUBLE)
    changes: dict[str, Any] = {} if memory_format is None else {"memory_format": memory_format}
    if dtype is not None and dtype != value.dtype:
        value = value.type(dtype)
    if changes:
        value = value.contiguous(**changes)
    if copy:
        value = value.clone()
    return ToGPU.apply(value) if onto and not there else value  # type: ignore[return-value]


# ---- what is refused -------------------------------------------------------------------------------------------------------------


def check(operator: Any, args: Any, kwargs: Any) -> None:
    name = name_of(operator)
    if not ("for_cpu" in name or "mkldnn" in name or has_kernel(name)):  # the first two: chosen because the CPU computes
        raise NotImplementedError(NO_KERNEL.format(operator._schema.name))
    if operator in INDEXED and isinstance(args[0], OnGPU):
        args = (args[0], *args[2:])
    if operator not in COPIES and any(is_foreign(each) for each in tensors((args, kwargs))):
        raise RuntimeError(TWO_DEVICES.format(name))
    if operator is aten.grid_sampler_2d.default and args[3] == 1:
        raise RuntimeError("MPS: Unsupported Border padding mode")
    if operator is aten._adaptive_avg_pool2d.default and any(a % b for a, b in zip(args[0].shape[-2:], args[1], strict=True)):
        raise RuntimeError("Adaptive pool MPS: input sizes must be divisible by output sizes.")


def is_foreign(value: torch.Tensor) -> bool:
    """A tensor of the host; those of one number may be mixed with others."""
    return not isinstance(value, OnGPU) and value.dim() > 0


# ---- the machine -----------------------------------------------------------------------------------------------------------------


class Machine(TorchFunctionMode):
    """Tensors are made on the GPU where it is asked for by name."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.to and args:
            return moved(args[0], args[1:], kwargs)
        device = kwargs.get("device")
        if is_gpu(device):
            if is_wide(kwargs.get("dtype")):
                raise TypeError(NO_DOUBLE)
            needs_gradient = kwargs.pop("requires_grad", False)
            made = function(*taken_off(args), **taken_off(kwargs | {"device": torch.device("cpu")}))
            if is_wide(made.dtype):
                raise TypeError(NO_DOUBLE)
            return OnGPU(made).requires_grad_(needs_gradient)
        if device is not None:
            return function(*taken_off(args), **taken_off(kwargs))
        if function is torch.nn.functional.one_hot and isinstance(args[0], OnGPU):  # makes a range on the device, out of our sight
            return OnGPU(function(args[0].host, *args[1:], **kwargs))
        if function in (torch.tensor, torch.as_tensor, torch.asarray) and isinstance(args[0], OnGPU):
            return args[0].clone()
        return function(*args, **kwargs)


def generator_class(plain: type) -> type:
    class Generator(plain):  # type: ignore[misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            return plain("cpu" if is_gpu(device) else device)

    return Generator


@contextmanager
def mac() -> Iterator[None]:
    """Inside, PyTorch has Apple's GPU, in every thread that starts there."""
    import torch._dynamo  # reads some of what is replaced below, and must find it as it was

    swapped = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)  # a parameter of the host cannot become one of the GPU in place
    run = threading.Thread.run

    def run_here(thread: threading.Thread) -> None:
        with Machine():
            run(thread)

    answers: dict[str, Callable[..., Any]] = {
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "manual_seed": lambda _: None,
        "get_rng_state": torch.get_rng_state,
        "set_rng_state": torch.set_rng_state,
        "device_count": lambda: 1,
        "driver_allocated_memory": lambda: MEMORY // 8,
        "current_allocated_memory": lambda: MEMORY // 16,
        "recommended_max_memory": lambda: MEMORY,
    }
    with pytest.MonkeyPatch.context() as patch, Machine():
        patch.setattr(torch.backends.mps, "is_available", lambda: True)
        patch.setattr(torch.backends.mps, "is_built", lambda: True)
        for name, answer in answers.items():
            patch.setattr(torch.mps, name, answer)
        patch.setattr(torch, "Generator", generator_class(torch.Generator))
        patch.setattr(threading.Thread, "run", run_here)
        try:
            yield
        finally:
            torch.__future__.set_swap_module_params_on_conversion(swapped)
