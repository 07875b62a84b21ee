"""Float32Copies converts modules without changing them."""

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from core.fusion import float32_copies
from core.fusion.float32_copies import Float32Copies
from core.kernels import linear_in_pieces as pieces


def modules_of(dtype: torch.dtype) -> list[nn.Module]:
    torch.manual_seed(0)
    by_column = Conv1D(24, 40)
    by_column.weight.data = by_column.weight.data.t().contiguous().t()
    block = nn.Sequential(nn.LayerNorm(40), Conv1D(24, 40), by_column, nn.BatchNorm1d(24))
    return [block.to(dtype), nn.Linear(40, 24, bias=False).to(dtype)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_parameter_and_buffer_is_converted(dtype):
    modules = modules_of(dtype)
    for module, twin in zip(modules, Float32Copies().of(modules), strict=True):
        assert type(twin) is type(module)
        state = twin.state_dict()
        assert state.keys() == module.state_dict().keys()
        for name, tensor in module.state_dict().items():
            assert state[name].dtype is (torch.float32 if tensor.dtype is dtype else tensor.dtype)
            assert torch.equal(state[name], tensor.to(state[name].dtype))
            assert state[name].stride() == tensor.stride()
        assert {t.dtype for t in module.parameters()} == {dtype}


def test_a_tied_weight_stays_tied():
    first, second = nn.Linear(8, 8).bfloat16(), nn.Linear(8, 8).bfloat16()
    second.weight = first.weight
    [twin] = Float32Copies().of([nn.Sequential(first, second)])
    assert twin[0].weight is twin[1].weight


def test_the_memory_is_used_again():
    copies = Float32Copies()
    first, second = (nn.Linear(8, 8).bfloat16() for _ in range(2))
    [one] = copies.of([first])
    address = one.weight.data_ptr()
    [other] = copies.of([second])
    assert other.weight.data_ptr() == address
    assert torch.equal(other.weight, second.weight.float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_large_linear_layer_is_widened_without_a_copy(monkeypatch, dtype, has_bias):
    monkeypatch.setattr(float32_copies, "_LARGE", 24 * 40)
    monkeypatch.setattr(pieces, "PIECE", 5 * 40)
    large, small = (nn.Linear(40, rows, bias=has_bias).to(dtype) for rows in (24, 23))
    copies = Float32Copies()
    first, second, third = copies.of([small, large, small])
    assert len(copies._memory) == small.weight.numel() + (23 if has_bias else 0)
    x = torch.randn(2, 3, 40)
    for original, wide in ((small, first), (large, second), (small, third)):
        bias = None if original.bias is None else original.bias.float()
        wanted = nn.functional.linear(x, original.weight.float(), bias)
        assert torch.allclose(wide(x), wanted, rtol=0, atol=1e-5)
