import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from core.module.layout import store_conv1d_by_column


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_conv1d_weights_of_16_bits_are_stored_by_column(dtype):
    model = nn.Sequential(Conv1D(24, 40), nn.Linear(24, 8)).to(dtype)
    x = torch.randn(3, 40).to(dtype)
    expected, values = model(x), [p.clone() for p in model.parameters()]
    store_conv1d_by_column(model)
    assert model[0].weight.t().is_contiguous()
    assert model[1].weight.is_contiguous()
    assert all(map(torch.equal, model.parameters(), values))
    torch.testing.assert_close(model(x), expected)


def test_conv1d_weights_of_32_bits_stay():
    model = nn.Sequential(Conv1D(24, 40))
    store_conv1d_by_column(model)
    assert model[0].weight.is_contiguous()
