from __future__ import annotations

from vitral.web.kernel import PARAMETERS, kernel

MAGIC = b"\0asm\1\0\0\0"


def sections(module: bytes) -> dict[int, bytes]:
    """The sections of a module by their number, each as long as it says."""
    found, at = {}, len(MAGIC)
    while at < len(module):
        kind, size, shift = module[at], 0, 0
        at += 1
        while True:
            byte = module[at]
            size |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        found[kind] = module[at : at + size]
        at += size
    assert at == len(module)
    return found


def test_it_is_a_module_of_one_function_that_takes_its_memory_from_the_page() -> None:
    module = kernel()
    assert module.startswith(MAGIC)
    found = sections(module)
    assert list(found) == [1, 2, 3, 7, 10]
    assert found[1] == bytes([1, 0x60, len(PARAMETERS)]) + b"\x7f" * len(PARAMETERS) + b"\0"
    assert found[2] == b"\1\4page\6memory\2\0\1"
    assert found[7] == b"\1\7product\0\0"


def test_it_is_the_same_each_time_and_small() -> None:
    assert kernel() == kernel()
    assert len(kernel()) < 2048
