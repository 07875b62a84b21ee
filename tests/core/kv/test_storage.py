from __future__ import annotations

import pytest
import torch

from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage, block_nbytes
from core.system.memory_ahead import HUGE_PAGE

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_clear_zeros_the_given_blocks_only(dtype: torch.dtype) -> None:
    layers = [LayerSpec(4, 2, 8, 4, 1.0, None)]
    storage = KVStorage(layers, num_blocks=5, block_size=4, dtype=dtype, device=CPU)
    for tensor in (*storage.keys, *storage.values):
        tensor.copy_(torch.full(tensor.shape, torch.nan))
    storage.clear([])
    storage.clear([1, 3])
    for tensor in (*storage.keys, *storage.values):
        assert (tensor.float()[[1, 3]] == 0).all()
        assert tensor.float()[[0, 2, 4]].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_blocks_with_nan_are_found(dtype: torch.dtype) -> None:
    layers = [LayerSpec(4, 2, 8, 4, 1.0, None)] * 2
    storage = KVStorage(layers, num_blocks=5, block_size=4, dtype=dtype, device=CPU)
    assert storage.not_finite([4, 0, 1, 2, 3]) == []
    storage.keys[1][3, 0, 2, 1] = torch.nan
    storage.values[0][2, 1, 3, 3] = torch.nan
    assert storage.not_finite([4, 2, 0, 3]) == [2, 3]
    assert storage.not_finite([4, 0]) == storage.not_finite([]) == []


def test_the_scales_of_int8_are_cleared_and_searched() -> None:
    layers = [LayerSpec(4, 2, 8, 4, 1.0, None)] * 2
    storage = KVStorage(layers, num_blocks=5, block_size=4, dtype=torch.int8, device=CPU)
    storage.key_scales[1][3, 0, 2] = torch.nan
    storage.value_scales[0][2, 1, 3] = torch.inf
    assert storage.not_finite([4, 2, 0, 3]) == [2, 3]
    storage.clear([2, 3])
    assert storage.not_finite([0, 1, 2, 3, 4]) == []
    per_block = sum(tensor[0].nbytes for tensor in storage.tensors)
    assert block_nbytes(layers, 4, torch.int8) == per_block


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8], ids=str)
def test_no_block_needs_the_next_huge_page_of_many_tensors(dtype: torch.dtype) -> None:
    """A step that needed one of each tensor would take a quarter of a second longer."""
    layers = [LayerSpec(8, 8, 64, 64, 1.0, None)] * 16
    storage = KVStorage(layers, num_blocks=2100, block_size=16, dtype=dtype, device=CPU)
    large = [tensor for tensor in storage.tensors if tensor.nbytes >= 8 * HUGE_PAGE]
    assert len(large) == 32
    seen = _huge_pages(large, 0)
    worst = 0
    for block in range(1, 2100):
        needed = _huge_pages(large, block)
        worst = max(worst, len(needed - seen))
        seen |= needed
    assert worst <= 2


def _huge_pages(tensors: list[torch.Tensor], block: int) -> set[int]:
    """The huge pages that a block's entries of these tensors begin and end in."""
    begins = [(tensor.data_ptr() + block * tensor[0].nbytes, tensor) for tensor in tensors]
    ends = [begin + tensor[0].nbytes - 1 for begin, tensor in begins]
    return {address // HUGE_PAGE for address in [*(begin for begin, _ in begins), *ends]}
