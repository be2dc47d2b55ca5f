"""What only a CUDA GPU can show: `make test-gpu`. Nothing here is skipped; without a GPU the run ends at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def machine() -> None:
    if not torch.cuda.is_available():
        pytest.exit("these tests need a CUDA GPU", returncode=3)
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")


@pytest.fixture
def cuda() -> torch.device:
    return torch.device("cuda")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Every test begins with an empty device and the same number formats."""
    before = torch.get_float32_matmul_precision()
    torch.cuda.empty_cache()
    yield
    torch.set_float32_matmul_precision(before)
    torch._dynamo.reset()
    torch.cuda.empty_cache()
