import pytest
import torch

from vitral.base.errors import ConfigError
from vitral.cost.precision import autocast, dtype_of, is_compiled

CPU = torch.device("cpu")


def test_half_precision_needs_a_gpu():
    assert dtype_of("auto", CPU) == torch.float32 and dtype_of("bf16", CPU) == torch.bfloat16
    with pytest.raises(ConfigError, match="fp16 training needs a CUDA GPU"):
        dtype_of("fp16", CPU)


def test_autocast_is_on_for_half_precision_alone():
    for dtype, cast in ((torch.float32, False), (torch.bfloat16, True)):
        with autocast(dtype, CPU):
            assert torch.is_autocast_enabled("cpu") is cast


def test_auto_compiles_on_cuda_alone():
    assert is_compiled("auto", torch.device("cuda")) and not is_compiled("auto", CPU)
    assert is_compiled("yes", CPU) and is_compiled("max", CPU) and not is_compiled("no", torch.device("cuda"))
