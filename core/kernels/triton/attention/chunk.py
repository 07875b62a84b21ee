"""Attention of prompt chunks: several query tokens per sequence.

The rows of a tile are pairs of a token and a query head of one kv head. So the keys and values of a
kv head are read once for all its query heads.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from core.kernels.triton.attention.attend import attend_tile, blocks_of_tile
from core.kernels.triton.attention.parts import ChunkPart
from core.kernels.triton.attention.shape import KernelShape
from core.kernels.triton.types import dot_type


@triton.jit
def _chunk_kernel(
    output,  # [num_tokens, num_heads, value_dim] contiguous
    query,
    keys,
    values,
    key_scales,
    value_scales,
    sinks,  # [num_heads] float32, or None
    chunks,  # [num_chunks, 4]: first row in query, number of queries, context length, table
    tiles,  # [num_tiles, 2]: chunk, first token of the chunk
    tables,
    table_stride,  # [1], in device memory
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
    HAS_SCALES: tl.constexpr,
    DOT_TYPE: tl.constexpr,
):
    GROUP: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    TOKENS: tl.constexpr = ROWS // GROUP
    tile = tl.program_id(0)
    head = tl.program_id(1)
    chunk = chunks + tl.load(tiles + tile * 2) * 4
    first = tl.load(tiles + tile * 2 + 1)
    first_row = tl.load(chunk).to(tl.int64)
    num_queries = tl.load(chunk + 1)
    num_before = tl.load(chunk + 2) - num_queries
    table = tables + tl.load(chunk + 3) * tl.load(table_stride).to(tl.int64)

    lines = tl.arange(0, ROWS)
    key_dims = tl.arange(0, HEAD_DIM_PAD)
    value_dims = tl.arange(0, VALUE_DIM_PAD)
    offsets = first + lines // GROUP
    heads = head * GROUP + lines % GROUP
    is_query = (offsets < num_queries) & (lines < TOKENS * GROUP)
    positions = num_before + offsets
    token_rows = first_row + offsets
    q_pointers = query + token_rows[:, None] * query_token_stride
    q_pointers += heads[:, None] * query_head_stride + key_dims[None, :]
    q_mask = is_query[:, None] & (key_dims[None, :] < HEAD_DIM)
    q = tl.load(q_pointers, mask=q_mask, other=0.0).to(DOT_TYPE)
    score_scale = scale
    if HAS_SCALES:
        score_scale = scale * tl.load(key_scales + head)

    first_position = num_before + first
    end = num_before + tl.minimum(first + TOKENS, num_queries)
    if WINDOW > 0:
        start = tl.maximum(first_position - (WINDOW - 1), 0) // TILE * TILE
        all_see = start
    else:  # tiles that end at or before the first query need no mask
        start = 0
        all_see = (first_position + 1) // TILE * TILE
    acc = tl.zeros([ROWS, VALUE_DIM_PAD], tl.float32)
    row_max = tl.full([ROWS], float("-inf"), tl.float32)
    row_sum = tl.zeros([ROWS], tl.float32)
    blocks = blocks_of_tile(table, start, end, BLOCK_SIZE, TILE)
    if WINDOW == 0:
        for begin in tl.range(start, all_see, TILE):
            next_blocks = blocks_of_tile(table, begin + TILE, end, BLOCK_SIZE, TILE)
            acc, row_max, row_sum = attend_tile(
                q,
                acc,
                row_max,
                row_sum,
                keys,
                values,
                blocks,
                head,
                begin,
                0,
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
                0,
                SOFTCAP,
                False,
                DOT_TYPE,
            )
            blocks = next_blocks
    for begin in tl.range(all_see, end, TILE):
        next_blocks = blocks_of_tile(table, begin + TILE, end, BLOCK_SIZE, TILE)
        acc, row_max, row_sum = attend_tile(
            q,
            acc,
            row_max,
            row_sum,
            keys,
            values,
            blocks,
            head,
            begin,
            first_position - (WINDOW - 1),
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
    if HAS_SINKS:
        row_sum += tl.exp2(tl.load(sinks + heads) * 1.4426950408889634 - row_max)
    acc /= tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    if HAS_SCALES:
        acc *= tl.load(value_scales + head)
    line = (token_rows * NUM_HEADS + heads)[:, None] * VALUE_DIM
    mask = is_query[:, None] & (value_dims[None, :] < VALUE_DIM)
    tl.store(output + line + value_dims[None, :], acc.to(output.dtype.element_ty), mask=mask)


def launch_chunks(
    output: torch.Tensor,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scales: tuple[torch.Tensor, torch.Tensor] | None,
    sinks: torch.Tensor | None,
    chunks: ChunkPart,
    shape: KernelShape,
) -> None:
    """Compute attention of the sequences that compute more than one token in this step."""
    tiles = chunks.tiles[shape.chunk_tokens]
    key_scales, value_scales = scales or (None, None)
    _chunk_kernel[(len(tiles) // 2, shape.num_kv_heads)](
        output,
        query,
        keys,
        values,
        key_scales,
        value_scales,
        sinks,
        chunks.chunks,
        tiles,
        chunks.tables,
        chunks.table_stride,
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
        ROWS=shape.chunk_rows,
        TILE=shape.chunk_tile,
        WINDOW=shape.window or 0,
        SOFTCAP=shape.softcap,
        HAS_SINKS=sinks is not None,
        HAS_SCALES=scales is not None,
        DOT_TYPE=dot_type(query.dtype),
        num_warps=shape.chunk_warps,
        enable_fp_fusion=True,
        num_stages=shape.chunk_stages,
    )
