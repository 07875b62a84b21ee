"""RMSNorm, RoPE and gated activation equal transformers' modules."""

import pytest
import torch

pytest.importorskip("triton")

from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from core.kernels.triton.gated import gated
from core.kernels.triton.head_norm import QueryKeyNorm
from core.kernels.triton.norm import rms_norm
from core.kernels.triton.rotary import rotate_
from core.kernels.triton.types import IS_INTERPRETED

DEVICES = [
    pytest.param(
        "cpu",
        marks=pytest.mark.skipif(not IS_INTERPRETED, reason="Triton's interpreter is not on"),
    ),
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]
DTYPES = [torch.float32, torch.float16]  # the interpreter truncates bfloat16 instead of rounding


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


def randn(*shape: int, dtype: torch.dtype, device: torch.device, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 1e-5 if actual.dtype == torch.float32 else 1e-2
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", ["llama", "gemma"])
@torch.inference_mode()
def test_rms_norm_equals_transformers(
    family: str, dtype: torch.dtype, device: torch.device
) -> None:
    norm = (LlamaRMSNorm if family == "llama" else Gemma3RMSNorm)(40, eps=1e-5)
    norm.weight.copy_(torch.randn(40, generator=torch.Generator().manual_seed(3)))
    norm = norm.to(device, dtype)
    states = randn(2, 3, 40, dtype=dtype, device=device)
    offset = 0.0 if family == "llama" else 1.0
    actual = rms_norm(states, norm.weight, 1e-5, weight_offset=offset)
    assert_close(actual, norm(states))


@torch.inference_mode()
def test_rms_norm_of_strided_rows(device: torch.device) -> None:
    wide = randn(5, 64, dtype=torch.float32, device=device)
    weight = randn(24, dtype=torch.float32, device=device)
    part = wide[:, 8:32]
    expected = torch.nn.functional.rms_norm(part, (24,), weight, 1e-6)
    assert_close(rms_norm(part, weight, 1e-6), expected)
    assert rms_norm(part[:0], weight, 1e-6).shape == (0, 24)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(16, 16), (24, 12)])
@torch.inference_mode()
def test_rotary_equals_transformers(
    head_dim: int, rotary_dim: int, dtype: torch.dtype, device: torch.device
) -> None:
    """The inputs are slices of one fused projection, changed in place."""
    fused = randn(5, (6 + 2 + 2) * head_dim, dtype=dtype, device=device)
    query, key, value = fused.split([6 * head_dim, 2 * head_dim, 2 * head_dim], dim=1)
    query, key = query.unflatten(1, (6, -1)), key.unflatten(1, (2, -1))
    angles = randn(5, rotary_dim // 2, dtype=torch.float32, device=device, seed=1)
    angles = torch.cat([angles, angles], dim=1)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    expected_query, expected_key = apply_rotary_pos_emb(
        query[None, ..., :rotary_dim].transpose(1, 2),
        key[None, ..., :rotary_dim].transpose(1, 2),
        cos[None],
        sin[None],
    )
    before = query.clone(), value.clone()
    rotate_(query, key, cos, sin)
    assert_close(query[..., :rotary_dim], expected_query[0].transpose(0, 1))
    assert_close(key[..., :rotary_dim], expected_key[0].transpose(0, 1))
    assert torch.equal(query[..., rotary_dim:], before[0][..., rotary_dim:])
    assert torch.equal(value, before[1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [0.0, 1.0])
@torch.inference_mode()
def test_rotary_after_the_norm_of_each_head(
    offset: float, dtype: torch.dtype, device: torch.device
) -> None:
    fused = randn(5, (6 + 3 + 1) * 24, dtype=dtype, device=device)
    query, key, _ = fused.split([6 * 24, 3 * 24, 24], dim=1)
    query, key = query.unflatten(1, (6, -1)), key.unflatten(1, (3, -1))
    weights = [randn(24, dtype=dtype, device=device, seed=seed) for seed in (1, 2)]
    cos, sin = (randn(5, 24, dtype=dtype, device=device, seed=seed) for seed in (3, 4))
    expected = [
        rms_norm(states.contiguous(), weight, 1e-6, weight_offset=offset)
        for states, weight in zip((query, key), weights, strict=True)
    ]
    rotate_(*expected, cos, sin)
    rotate_(query, key, cos, sin, QueryKeyNorm(*weights, 1e-6, offset))
    assert_close(query, expected[0])
    assert_close(key, expected[1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@torch.inference_mode()
def test_gated_activation_equals_torch(
    activation: str, dtype: torch.dtype, device: torch.device
) -> None:
    gate_up = randn(2, 3, 2 * 1100, dtype=dtype, device=device) * 3
    gate, up = gate_up.chunk(2, dim=-1)
    if activation == "silu":
        expected = torch.nn.functional.silu(gate) * up
    else:
        expected = torch.nn.functional.gelu(gate, approximate="tanh") * up
    assert_close(gated(gate_up, activation), expected)
