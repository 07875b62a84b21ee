"""The activation of a gated MLP, multiplied by its gated input."""

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl

_BLOCK = 1024


@triton.jit
def _gated_kernel(
    output,
    gate_up,
    row_stride,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_GELU: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    dims = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = dims < SIZE
    kind = output.dtype.element_ty
    gate = tl.load(gate_up + row * row_stride + dims, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * row_stride + SIZE + dims, mask=mask, other=0.0).to(tl.float32)
    if IS_GELU:  # x * (1 + tanh(a)) / 2 = x * sigmoid(2 a)
        slope = 2.0 * 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
    else:
        slope = gate
    slope = tl.maximum(slope, -80.0)  # keeps the exponential of the sigmoid finite
    active = (gate * tl.sigmoid(slope)).to(kind).to(tl.float32)
    tl.store(output + row * SIZE + dims, (active * up).to(kind), mask=mask)


def gated(gate_up: torch.Tensor, activation: Literal["silu", "gelu_tanh"] = "silu") -> torch.Tensor:
    """Return ``activation(gate) * up`` [..., size]; ``gate_up`` is [..., 2 * size], gate first."""
    size = gate_up.shape[-1] // 2
    rows = gate_up if gate_up.dim() == 2 else gate_up.reshape(-1, 2 * size)
    assert rows.stride(1) == 1
    shape = (*gate_up.shape[:-1], size)
    output = torch.empty(shape, dtype=gate_up.dtype, device=gate_up.device)
    if rows.shape[0]:
        _gated_kernel[(rows.shape[0], -(-size // _BLOCK))](
            output,
            rows,
            rows.stride(0),
            SIZE=size,
            BLOCK=_BLOCK,
            IS_GELU=activation == "gelu_tanh",
            num_warps=4,
            enable_fp_fusion=True,
        )
    return output
