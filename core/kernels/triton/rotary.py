"""RoPE in the NeoX layout, where each pair has one value in either half of the head.

The RMSNorm of each head, if the model has one, is part of the same launch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from core.kernels.triton.head_norm import QueryKeyNorm


@triton.jit
def _rotate_heads(
    states,
    head_stride,
    cos,
    sin,
    weight,  # of the head norm, or None
    epsilon,
    NUM_HEADS: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    HALF: tl.constexpr,
    HALF_PAD: tl.constexpr,
    WEIGHT_OFFSET: tl.constexpr,
):
    heads = tl.arange(0, HEADS_PAD)
    dims = tl.arange(0, HALF_PAD)
    is_half = dims < HALF
    low = states + heads[:, None] * head_stride + dims[None, :]
    mask = (heads[:, None] < NUM_HEADS) & is_half[None, :]
    x = tl.load(low, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(low + HALF, mask=mask, other=0.0).to(tl.float32)
    kind = states.dtype.element_ty
    if weight is not None:
        factor = tl.rsqrt((tl.sum(x * x, 1) + tl.sum(y * y, 1)) / (2 * HALF) + epsilon)
        x *= factor[:, None]
        y *= factor[:, None]
        if WEIGHT_OFFSET == 0.0:
            x = x.to(kind).to(tl.float32)
            y = y.to(kind).to(tl.float32)
        scale = tl.load(weight + dims, mask=is_half, other=0.0).to(tl.float32) + WEIGHT_OFFSET
        x = (x * scale[None, :]).to(kind).to(tl.float32)
        scale = tl.load(weight + HALF + dims, mask=is_half, other=0.0).to(tl.float32)
        y = (y * (scale + WEIGHT_OFFSET)[None, :]).to(kind).to(tl.float32)
    cos_low = tl.load(cos + dims, mask=is_half, other=0.0).to(tl.float32)
    cos_high = tl.load(cos + HALF + dims, mask=is_half, other=0.0).to(tl.float32)
    sin_low = tl.load(sin + dims, mask=is_half, other=0.0).to(tl.float32)
    sin_high = tl.load(sin + HALF + dims, mask=is_half, other=0.0).to(tl.float32)
    tl.store(low, (x * cos_low[None, :] - y * sin_low[None, :]).to(kind), mask=mask)
    tl.store(low + HALF, (y * cos_high[None, :] + x * sin_high[None, :]).to(kind), mask=mask)


@triton.jit
def _rotary_kernel(
    query,
    key,
    cos,
    sin,
    query_weight,
    key_weight,
    epsilon,
    query_token_stride,
    query_head_stride,
    key_token_stride,
    key_head_stride,
    cos_stride,
    sin_stride,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    KV_HEADS_PAD: tl.constexpr,
    HALF: tl.constexpr,
    HALF_PAD: tl.constexpr,
    WEIGHT_OFFSET: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    if tl.program_id(1) == 0:
        _rotate_heads(
            query + token * query_token_stride,
            query_head_stride,
            cos + token * cos_stride,
            sin + token * sin_stride,
            query_weight,
            epsilon,
            NUM_HEADS,
            HEADS_PAD,
            HALF,
            HALF_PAD,
            WEIGHT_OFFSET,
        )
    else:
        _rotate_heads(
            key + token * key_token_stride,
            key_head_stride,
            cos + token * cos_stride,
            sin + token * sin_stride,
            key_weight,
            epsilon,
            NUM_KV_HEADS,
            KV_HEADS_PAD,
            HALF,
            HALF_PAD,
            WEIGHT_OFFSET,
        )


def rotate_(
    query: torch.Tensor,
    key: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    norm: QueryKeyNorm | None = None,
) -> None:
    """Apply RoPE to ``query`` and ``key`` [num_tokens, heads, head_dim] in place, in one launch.

    ``cos`` and ``sin`` are [num_tokens, rotary_dim] as in transformers: both halves are equal.
    Dimensions from ``rotary_dim`` on do not change. A ``norm`` normalises every head first; it
    requires rotary_dim == head_dim. Last dimensions are contiguous.
    """
    half = cos.shape[1] // 2
    num_heads, num_kv_heads = query.shape[1], key.shape[1]
    assert all(states.stride(-1) == 1 for states in (query, key, cos, sin))
    assert norm is None or 2 * half == query.shape[2] == key.shape[2]
    if not query.shape[0]:
        return
    heads_pad = 1 << (num_heads - 1).bit_length()
    half_pad = 1 << (half - 1).bit_length()
    _rotary_kernel[(query.shape[0], 2)](
        query,
        key,
        cos,
        sin,
        None if norm is None else norm.query_weight,
        None if norm is None else norm.key_weight,
        0.0 if norm is None else norm.epsilon,
        query.stride(0),
        query.stride(1),
        key.stride(0),
        key.stride(1),
        cos.stride(0),
        sin.stride(0),
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEADS_PAD=heads_pad,
        KV_HEADS_PAD=1 << (num_kv_heads - 1).bit_length(),
        HALF=half,
        HALF_PAD=half_pad,
        WEIGHT_OFFSET=0.0 if norm is None else norm.offset,
        num_warps=min(max(heads_pad * half_pad // 256, 1), 8),
        enable_fp_fusion=True,
    )
