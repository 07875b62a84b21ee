"""Of what no pattern knows, small weights become float32, large ones keep their type."""

import copy
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from core.fusion.cpu.weights import widen_small
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from tests.core.fusion.test_cpu import installed
from tests.support.checkpoints import tiny_model


class Scaled(nn.Module):
    """A layer with a large weight of its own, small parts, and a float32 part."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(32, 32))
        self.norm = nn.LayerNorm(32)
        self.fused = Wide()

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, Any]:
        assert x.dtype is scale.dtype is torch.bfloat16
        return {"y": self.fused(self.norm(x) @ self.matrix) @ self.matrix * scale}


class Wide(nn.Module):
    """Answers in float32, as fused modules do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float() * 2


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.large = Scaled()
        self.table = nn.Embedding(64, 32)
        self.register_buffer("mean", torch.zeros(32))
        self.register_buffer("count", torch.zeros(3, dtype=torch.int64))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        assert x.dtype is torch.float32
        y = self.large(self.norm(x), scale=torch.ones(32))["y"]
        assert y.dtype is torch.float32
        return y - self.mean


def test_only_large_modules_keep_their_type() -> None:
    torch.manual_seed(0)
    model = Model().bfloat16().requires_grad_(requires_grad=False)
    exact = Model().requires_grad_(requires_grad=False)
    exact.load_state_dict(model.state_dict())
    widen_small(model, large=1024)
    dtypes = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    kept = {name for name, dtype in dtypes.items() if dtype is torch.bfloat16}
    assert kept == {"large.matrix", "large.norm.weight", "large.norm.bias", "table.weight"}
    assert dtypes.pop("count") is torch.int64
    ids = torch.arange(9)
    wide = exact.large
    with torch.inference_mode():
        x = exact.norm(exact.table(ids))
        expected = wide.fused(wide.norm(x) @ wide.matrix) @ wide.matrix - exact.mean
        actual = model(ids)
    assert (actual - expected).abs().max() < 0.03 * expected.abs().max()


@pytest.mark.skipif(kernels() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("dtype", "fmt"), [(torch.float32, Format.FLOAT32), (torch.bfloat16, Format.BFLOAT16)]
)
@pytest.mark.parametrize("family", ["gemma3", "mistral", "qwen3"])
def test_a_mapped_checkpoint_is_released(
    family: str, dtype: torch.dtype, fmt: Format, tmp_path: Path
) -> None:
    copy.deepcopy(tiny_model(family)).to(dtype).save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    assert str(tmp_path) in Path("/proc/self/maps").read_text()
    model = model.eval().requires_grad_(False)
    installed(model, fmt)
    gc.collect()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
