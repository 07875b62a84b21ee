"""Merge the splits of each decoded sequence."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from core.kernels.triton.attention.parts import MAX_SPLITS, DecodePart, SplitPart
from core.kernels.triton.attention.shape import KernelShape


@triton.jit
def _merge_kernel(
    output,  # [num_tokens, num_heads, value_dim] contiguous
    partials,  # [num_splits, num_heads, PARTIAL] float32: values, then maximum and sum
    tokens,
    split_starts,
    sinks,  # [num_heads] float32, or None
    NUM_HEADS: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    VALUE_DIM_PAD: tl.constexpr,
    PARTIAL: tl.constexpr,
    SPLITS: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    row = tl.program_id(0)
    head = tl.program_id(1)
    first = tl.load(split_starts + row)
    num_splits = tl.load(split_starts + row + 1) - first
    if num_splits > 1:
        splits = tl.arange(0, SPLITS)
        dims = tl.arange(0, VALUE_DIM_PAD)
        is_split = splits < num_splits
        partial = partials + ((first + splits).to(tl.int64) * NUM_HEADS + head) * PARTIAL
        maxima = tl.load(partial + (PARTIAL - 2), mask=is_split, other=float("-inf"))
        sums = tl.load(partial + (PARTIAL - 1), mask=is_split, other=0.0)
        best = tl.max(maxima, 0)
        weights = tl.exp2(maxima - best)
        total = tl.sum(sums * weights, 0)
        if HAS_SINKS:
            total += tl.exp2(tl.load(sinks + head) * 1.4426950408889634 - best)
        mask = is_split[:, None] & (dims[None, :] < VALUE_DIM)
        values = tl.load(partial[:, None] + dims[None, :], mask=mask, other=0.0)
        result = tl.sum(values * weights[:, None], 0) / total
        token = tl.load(tokens + row).to(tl.int64)
        tl.store(
            output + (token * NUM_HEADS + head) * VALUE_DIM + dims,
            result.to(output.dtype.element_ty),
            mask=dims < VALUE_DIM,
        )


def launch_merge(
    output: torch.Tensor,
    partials: torch.Tensor,
    sinks: torch.Tensor | None,
    decodes: DecodePart,
    splits: SplitPart,
    shape: KernelShape,
) -> None:
    """Write the output of the sequences that have more than one split."""
    _merge_kernel[(decodes.num_rows, shape.num_heads)](
        output,
        partials,
        decodes.tokens,
        splits.split_starts,
        sinks,
        NUM_HEADS=shape.num_heads,
        VALUE_DIM=shape.value_dim,
        VALUE_DIM_PAD=shape.value_dim_pad,
        PARTIAL=shape.partial_size,
        SPLITS=MAX_SPLITS,
        HAS_SINKS=sinks is not None,
        num_warps=4,
        enable_fp_fusion=True,
    )
