"""RMSNorm."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _rms_norm_kernel(
    output,
    states,
    weight,
    row_stride,
    epsilon,
    SIZE: tl.constexpr,
    SIZE_PAD: tl.constexpr,
    WEIGHT_OFFSET: tl.constexpr,
    ROUND_FIRST: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, SIZE_PAD)
    mask = dims < SIZE
    x = tl.load(states + row * row_stride + dims, mask=mask, other=0.0).to(tl.float32)
    x *= tl.rsqrt(tl.sum(x * x, 0) / SIZE + epsilon)
    scale = tl.load(weight + dims, mask=mask, other=0.0).to(tl.float32) + WEIGHT_OFFSET
    if ROUND_FIRST:
        x = x.to(output.dtype.element_ty).to(tl.float32)
    tl.store(output + row * SIZE + dims, (x * scale).to(output.dtype.element_ty), mask=mask)


def rms_norm(
    states: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    *,
    weight_offset: float = 0.0,
) -> torch.Tensor:
    """Normalise ``states`` [..., size] and scale by ``weight``.

    With a ``weight_offset`` (1 for Gemma) the result is rounded once, after scaling. Without one it
    is also rounded before scaling, as in Llama and Qwen. The last dimension of ``states`` is
    contiguous.
    """
    size = states.shape[-1]
    rows = states if states.dim() == 2 else states.reshape(-1, size)
    assert rows.stride(1) == 1
    output = torch.empty(states.shape, dtype=states.dtype, device=states.device)
    size_pad = 1 << (size - 1).bit_length()
    if rows.shape[0]:
        _rms_norm_kernel[(rows.shape[0],)](
            output,
            rows,
            weight,
            rows.stride(0),
            epsilon,
            SIZE=size,
            SIZE_PAD=size_pad,
            WEIGHT_OFFSET=weight_offset,
            ROUND_FIRST=weight_offset == 0.0,
            num_warps=min(max(size_pad // 512, 1), 16),
            enable_fp_fusion=True,
        )
    return output
