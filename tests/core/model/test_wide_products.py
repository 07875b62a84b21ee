"""Products of narrow types by way of float32."""

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from core.model.wide_products import WideProducts


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("kind", ["linear", "plain", "transposed"])
def test_the_result_is_that_of_float32_rounded_once(kind, dtype):
    torch.manual_seed(0)
    layer = Conv1D(24, 40) if kind == "transposed" else nn.Linear(40, 24, bias=kind == "linear")
    layer = layer.to(dtype)
    x = torch.randn(2, 3, 40).to(dtype)
    with torch.inference_mode(), WideProducts():
        actual = layer(x)
    assert actual.dtype == dtype
    expected = layer.float()(x.float()).to(dtype)
    assert torch.equal(actual, expected)
