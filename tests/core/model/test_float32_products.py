"""Float32Products computes linear layers of narrow types in float32."""

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from core.model import float32_products
from core.model.float32_products import Float32Products


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("kind", ["linear", "without bias", "Conv1D"])
def test_the_result_is_that_of_float32_rounded_once(kind, dtype):
    torch.manual_seed(0)
    layer = Conv1D(24, 40) if kind == "Conv1D" else nn.Linear(40, 24, bias=kind == "linear")
    layer = layer.to(dtype)
    x = torch.randn(2, 3, 40).to(dtype)
    with torch.inference_mode(), Float32Products():
        actual = layer(x)
    assert actual.dtype == dtype
    expected = layer.float()(x.float()).to(dtype)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("kind", ["linear", "Conv1D"])
def test_weights_are_converted_in_blocks(kind, monkeypatch):
    monkeypatch.setattr(float32_products, "BLOCK", 100)
    torch.manual_seed(0)
    layer = (Conv1D(24, 40) if kind == "Conv1D" else nn.Linear(40, 24)).bfloat16()
    x = torch.randn(2, 3, 40).bfloat16()
    with torch.inference_mode(), Float32Products():
        actual = layer(x)
    torch.testing.assert_close(actual, layer.float()(x.float()).bfloat16(), rtol=1e-2, atol=1e-3)
