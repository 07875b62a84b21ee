"""Store a step's keys and values in their slots, in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from core.kernels.triton.attention.shape import KernelShape

_MAX_E4M3 = 448.0


@triton.jit
def _write_kernel(
    keys,
    values,
    key,
    value,
    slots,  # [num_tokens]: block * block_size + offset; a negative slot is not written
    key_scales,
    value_scales,
    key_token_stride,
    key_head_stride,
    value_token_stride,
    value_head_stride,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    HEAD_DIM_PAD: tl.constexpr,
    VALUE_DIM_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    LIMIT: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    if slot >= 0:
        heads = tl.arange(0, HEADS_PAD)
        key_dims = tl.arange(0, HEAD_DIM_PAD)
        value_dims = tl.arange(0, VALUE_DIM_PAD)
        is_head = heads < NUM_KV_HEADS
        row = (slot // BLOCK_SIZE * NUM_KV_HEADS + heads) * BLOCK_SIZE + slot % BLOCK_SIZE
        k_mask = is_head[:, None] & (key_dims[None, :] < HEAD_DIM)
        v_mask = is_head[:, None] & (value_dims[None, :] < VALUE_DIM)
        k_pointers = key + token * key_token_stride + heads[:, None] * key_head_stride
        v_pointers = value + token * value_token_stride + heads[:, None] * value_head_stride
        k = tl.load(k_pointers + key_dims[None, :], mask=k_mask, other=0.0)
        v = tl.load(v_pointers + value_dims[None, :], mask=v_mask, other=0.0)
        if HAS_SCALES:
            k_scale = tl.load(key_scales + heads, mask=is_head, other=1.0)
            v_scale = tl.load(value_scales + heads, mask=is_head, other=1.0)
            k = k.to(tl.float32) / k_scale[:, None]
            v = v.to(tl.float32) / v_scale[:, None]
            k = tl.minimum(tl.maximum(k, -LIMIT), LIMIT)
            v = tl.minimum(tl.maximum(v, -LIMIT), LIMIT)
        k_target = keys + row[:, None] * HEAD_DIM + key_dims[None, :]
        v_target = values + row[:, None] * VALUE_DIM + value_dims[None, :]
        tl.store(k_target, k.to(keys.dtype.element_ty), mask=k_mask)
        tl.store(v_target, v.to(values.dtype.element_ty), mask=v_mask)


def launch_write(
    keys: torch.Tensor,
    values: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    slots: torch.Tensor,
    scales: tuple[torch.Tensor, torch.Tensor] | None,
    shape: KernelShape,
) -> None:
    """Store ``key`` and ``value``, ``[num_tokens, num_kv_heads, dim]``, in their slots.

    With ``scales``, ``[num_kv_heads]`` float32 each, the stored value is the state divided by its
    scale.
    """
    key_scales, value_scales = scales or (None, None)
    _write_kernel[(key.shape[0],)](
        keys,
        values,
        key,
        value,
        slots,
        key_scales,
        value_scales,
        key.stride(0),
        key.stride(1),
        value.stride(0),
        value.stride(1),
        NUM_KV_HEADS=shape.num_kv_heads,
        HEAD_DIM=shape.head_dim,
        VALUE_DIM=shape.value_dim,
        HEADS_PAD=shape.kv_heads_pad,
        HEAD_DIM_PAD=shape.head_dim_pad,
        VALUE_DIM_PAD=shape.value_dim_pad,
        BLOCK_SIZE=shape.block_size,
        HAS_SCALES=scales is not None,
        LIMIT=_MAX_E4M3,
        num_warps=shape.write_warps,
        enable_fp_fusion=True,
    )
