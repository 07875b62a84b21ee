"""Split-KV decode attention: one query token per sequence, its context split over programs.

A fixed number of programs loops over (split, kv head) items. The number of items is read from
device memory, so one captured launch serves any context lengths.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from core.kernels.triton.attention.attend import attend_tile, blocks_of_tile
from core.kernels.triton.attention.parts import DecodePart, SplitPart
from core.kernels.triton.attention.shape import KernelShape
from core.kernels.triton.types import dot_type


@triton.jit(do_not_specialize=["num_rows"])
def _decode_kernel(
    output,  # [num_tokens, num_heads, value_dim] contiguous
    partials,  # [num_splits, num_heads, PARTIAL] float32: values, then maximum and sum
    query,
    keys,
    values,
    key_scales,
    value_scales,
    sinks,  # [num_heads] float32, or None
    tokens,  # [num_rows] row of query and output
    context_lens,  # [num_rows]
    tables,
    table_stride,  # [1], in device memory
    first_tokens,  # [num_rows]
    split_lens,  # [num_rows]
    split_starts,  # [num_rows + 1] cumulative number of splits
    num_rows,
    query_token_stride,
    query_head_stride,
    scale,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEAD_DIM_PAD: tl.constexpr,
    VALUE_DIM_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    SEARCH: tl.constexpr,
    PARTIAL: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    DOT_TYPE: tl.constexpr,
):
    GROUP: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    lines = tl.arange(0, ROWS)
    key_dims = tl.arange(0, HEAD_DIM_PAD)
    value_dims = tl.arange(0, VALUE_DIM_PAD)
    is_head = lines < GROUP
    stride = tl.load(table_stride).to(tl.int64)
    num_items = tl.load(split_starts + num_rows) * NUM_KV_HEADS
    for item in tl.range(tl.program_id(0), num_items, tl.num_programs(0)):
        head = item % NUM_KV_HEADS
        split_index = item // NUM_KV_HEADS
        row = 0  # number of rows whose splits all come earlier
        for base in tl.range(0, num_rows, SEARCH):
            rows = base + tl.arange(0, SEARCH)
            ends = tl.load(split_starts + 1 + rows, mask=rows < num_rows, other=2147483647)
            row += tl.sum((ends <= split_index).to(tl.int32), 0)
        split_start = tl.load(split_starts + row)
        num_splits = tl.load(split_starts + row + 1) - split_start
        context_len = tl.load(context_lens + row)
        split_len = tl.load(split_lens + row)
        start = tl.load(first_tokens + row) + (split_index - split_start) * split_len
        end = tl.minimum(start + split_len, context_len)
        token = tl.load(tokens + row).to(tl.int64)

        heads = head * GROUP + lines
        q_pointers = query + token * query_token_stride + heads[:, None] * query_head_stride
        q_mask = is_head[:, None] & (key_dims[None, :] < HEAD_DIM)
        q = tl.load(q_pointers + key_dims[None, :], mask=q_mask, other=0.0).to(DOT_TYPE)
        score_scale = scale
        if HAS_SCALES:
            score_scale = scale * tl.load(key_scales + head)
        positions = tl.full([ROWS], 0, tl.int32) + (context_len - 1)
        acc = tl.zeros([ROWS, VALUE_DIM_PAD], tl.float32)
        row_max = tl.full([ROWS], float("-inf"), tl.float32)
        row_sum = tl.zeros([ROWS], tl.float32)
        table = tables + row * stride
        blocks = blocks_of_tile(table, start, end, BLOCK_SIZE, TILE)
        for tile in tl.range(start, end, TILE):
            next_blocks = blocks_of_tile(table, tile + TILE, end, BLOCK_SIZE, TILE)
            acc, row_max, row_sum = attend_tile(
                q,
                acc,
                row_max,
                row_sum,
                keys,
                values,
                blocks,
                head,
                tile,
                context_len - WINDOW,
                end,
                positions,
                score_scale,
                NUM_KV_HEADS,
                HEAD_DIM,
                VALUE_DIM,
                HEAD_DIM_PAD,
                VALUE_DIM_PAD,
                BLOCK_SIZE,
                TILE,
                WINDOW,
                SOFTCAP,
                True,
                DOT_TYPE,
            )
            blocks = next_blocks
        if HAS_SCALES:
            acc *= tl.load(value_scales + head)
        is_stored = is_head[:, None] & (value_dims[None, :] < VALUE_DIM)
        if num_splits == 1:  # no merge; a padding row has an empty context and gets zeros
            if HAS_SINKS:
                sink = tl.load(sinks + heads, mask=is_head, other=0.0)
                row_sum += tl.exp2(sink * 1.4426950408889634 - row_max)
            acc /= tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
            line = (token * NUM_HEADS + heads)[:, None] * VALUE_DIM
            tl.store(
                output + line + value_dims[None, :],
                acc.to(output.dtype.element_ty),
                mask=is_stored,
            )
        else:
            partial = partials + (split_index.to(tl.int64) * NUM_HEADS + heads) * PARTIAL
            tl.store(partial[:, None] + value_dims[None, :], acc, mask=is_stored)
            tl.store(partial + (PARTIAL - 2), row_max, mask=is_head)
            tl.store(partial + (PARTIAL - 1), row_sum, mask=is_head)


def launch_decode(
    output: torch.Tensor,
    partials: torch.Tensor,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scales: tuple[torch.Tensor, torch.Tensor] | None,
    sinks: torch.Tensor | None,
    decodes: DecodePart,
    splits: SplitPart,
    shape: KernelShape,
    *,
    max_programs: int,
) -> None:
    """Compute attention of the decodes. ``launch_merge`` completes those with several splits."""
    num_programs = min(splits.max_num_splits * shape.num_kv_heads, max_programs)
    key_scales, value_scales = scales or (None, None)
    _decode_kernel[(num_programs,)](
        output,
        partials,
        query,
        keys,
        values,
        key_scales,
        value_scales,
        sinks,
        decodes.tokens,
        decodes.context_lens,
        decodes.tables,
        decodes.table_stride,
        splits.first_tokens,
        splits.split_lens,
        splits.split_starts,
        decodes.num_rows,
        query.stride(0),
        query.stride(1),
        shape.score_scale,
        NUM_HEADS=shape.num_heads,
        NUM_KV_HEADS=shape.num_kv_heads,
        HEAD_DIM=shape.head_dim,
        VALUE_DIM=shape.value_dim,
        HEAD_DIM_PAD=shape.head_dim_pad,
        VALUE_DIM_PAD=shape.value_dim_pad,
        BLOCK_SIZE=shape.block_size,
        ROWS=shape.decode_rows,
        TILE=shape.decode_tile,
        WINDOW=shape.window or 0,
        SOFTCAP=shape.softcap,
        HAS_SINKS=sinks is not None,
        SEARCH=256,
        PARTIAL=shape.partial_size,
        HAS_SCALES=scales is not None,
        DOT_TYPE=dot_type(query.dtype),
        num_warps=4,
        enable_fp_fusion=True,
        num_stages=shape.decode_stages,
    )
