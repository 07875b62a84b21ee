"""One tile of online softmax attention. The decode and the chunk kernel share it."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def blocks_of_tile(table, start, end, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr):
    """Load the block ids [TILE] of the tokens from ``start``; 0 from ``end`` on.

    Callers load them one tile ahead. If they were loaded where they are used, the compiler would
    spend pipeline stages on them that keys and values need.
    """
    tokens = start + tl.arange(0, TILE)
    return tl.load(table + tokens // BLOCK_SIZE, mask=tokens < end, other=0)


@triton.jit
def capped(scores, SOFTCAP: tl.constexpr):
    """``SOFTCAP * tanh(scores / SOFTCAP)``, with Cephes' tanhf: its polynomial serves small x."""
    x = scores / SOFTCAP
    z = x * x
    p = -5.70498872745e-3 * z + 2.06390887954e-2
    p = p * z - 5.37397155531e-2
    p = p * z + 1.33314422036e-1
    p = p * z - 3.33332819422e-1
    large = 1.0 - 2.0 / (tl.exp2(2.8853900817779268 * x) + 1.0)  # exp(2x)
    return SOFTCAP * tl.where(z < 0.390625, p * z * x + x, large)


@triton.jit
def attend_tile(
    q,  # [rows, head_dim_pad] in DOT_TYPE
    acc,  # [rows, value_dim_pad] float32: sum of weighted values
    row_max,  # [rows] float32, in units of log2
    row_sum,  # [rows] float32
    keys,
    values,
    blocks,  # [TILE]: the block of each token of the tile
    head,
    start,  # first token
    first,  # tokens before are not read, if WINDOW: their blocks may be another sequence's
    end,  # tokens from here are not read
    positions,  # [rows]: a row attends to tokens up to its position
    scale,  # softmax scale, times log2(e) unless SOFTCAP
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEAD_DIM_PAD: tl.constexpr,
    VALUE_DIM_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,  # 0: none
    MASKED: tl.constexpr,
    DOT_TYPE: tl.constexpr,
):
    """Add the tile to every row; return acc, row_max, row_sum.

    Without MASKED, every row must attend to the whole tile.
    """
    tokens = start + tl.arange(0, TILE)
    key_dims = tl.arange(0, HEAD_DIM_PAD)
    value_dims = tl.arange(0, VALUE_DIM_PAD)
    is_read = tokens < end
    if WINDOW > 0:
        is_read &= tokens >= first
    slots = (blocks.to(tl.int64) * NUM_KV_HEADS + head) * BLOCK_SIZE + tokens % BLOCK_SIZE

    k_pointers = keys + slots[None, :] * HEAD_DIM + key_dims[:, None]
    v_pointers = values + slots[:, None] * VALUE_DIM + value_dims[None, :]
    # masked slots are read as zero: a stale value may be NaN, and 0 * NaN is NaN
    if MASKED:
        k_mask = is_read[None, :] & (key_dims[:, None] < HEAD_DIM)
        v_mask = is_read[:, None] & (value_dims[None, :] < VALUE_DIM)
        k = tl.load(k_pointers, mask=k_mask, other=0.0)
        v = tl.load(v_pointers, mask=v_mask, other=0.0)
    else:
        if HEAD_DIM_PAD == HEAD_DIM:
            k = tl.load(k_pointers)
        else:
            k = tl.load(k_pointers, mask=key_dims[:, None] < HEAD_DIM, other=0.0)
        if VALUE_DIM_PAD == VALUE_DIM:
            v = tl.load(v_pointers)
        else:
            v = tl.load(v_pointers, mask=value_dims[None, :] < VALUE_DIM, other=0.0)

    scores = tl.dot(q, k.to(DOT_TYPE), input_precision="ieee") * scale
    if SOFTCAP > 0:
        scores = capped(scores, SOFTCAP) * 1.4426950408889634  # log2(e)
    if MASKED:
        is_seen = tokens[None, :] <= positions[:, None]
        if WINDOW > 0:
            is_seen &= tokens[None, :] > positions[:, None] - WINDOW
        scores = tl.where(is_seen, scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    if MASKED:  # avoid -inf - -inf = NaN in rows that attend to no token yet
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
    else:
        shift = new_max
    weights = tl.exp2(scores - shift[:, None])
    fade = tl.exp2(row_max - shift)
    row_sum = row_sum * fade + tl.sum(weights, 1)
    acc = tl.dot(weights.to(DOT_TYPE), v.to(DOT_TYPE), acc * fade[:, None], input_precision="ieee")
    return acc, new_max, row_sum
