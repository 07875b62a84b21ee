"""RMSNorm, with the residual addition before it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _rms_norm_kernel(
    output,
    states,
    residual,  # [num_rows, size] contiguous, updated in place; or None
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
    if residual is not None:
        stream = residual + row * SIZE + dims
        total = (x + tl.load(stream, mask=mask, other=0.0).to(tl.float32)).to(
            residual.dtype.element_ty
        )
        tl.store(stream, total, mask=mask)
        x = total.to(tl.float32)
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
    residual: torch.Tensor | None = None,
    weight_offset: float = 0.0,
) -> torch.Tensor:
    """Normalise ``states`` [..., size], plus ``residual`` if given, and scale by ``weight``.

    The sum is stored in ``residual``, which is contiguous and has the shape and type of ``states``.
    With a ``weight_offset`` (1 for Gemma) the result is rounded once, after scaling. Without one it
    is also rounded before scaling, as in Llama and Qwen. The last dimension of ``states`` is
    contiguous.
    """
    size = states.shape[-1]
    rows = states if states.dim() == 2 else states.reshape(-1, size)
    assert rows.stride(1) == 1
    assert residual is None or (residual.is_contiguous() and residual.shape == states.shape)
    output = torch.empty(states.shape, dtype=states.dtype, device=states.device)
    size_pad = 1 << (size - 1).bit_length()
    if rows.shape[0]:
        _rms_norm_kernel[(rows.shape[0],)](
            output,
            rows,
            residual,
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
