"""Linear layer with int8 or float8 (e4m3) weights and one float32 scale per output.

The kernel converts weights to the type of the activations in registers, which is exact. Tensor
cores multiply them. Sums are float32 and are scaled last.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from core.kernels.triton.types import dot_type

MAX_ROWS = 256
"""Most rows that the kernel multiplies. More rows use a dequantised copy of the matrix."""

MIN_BLOCK_N = 64
"""Fewest outputs of a tile: the height of a warp group's tensor core product."""

_NUM_PROGRAMS = 256
"""Programs to aim at: about two per multiprocessor."""

_MAX_SPLITS = 8
"""Most splits of the inner dimension. The last program of a tile holds all their sums in
registers."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tile sizes and the splits of the inner dimension.

    ``block_k``, ``blocks_per_split`` and ``num_splits`` depend only on the matrix. So the order of
    summation does not depend on the number of rows.
    """

    block_m: int
    block_n: int
    block_k: int
    blocks_per_split: int
    num_splits: int
    num_warps: int
    num_stages: int


def choose_tiles(num_rows: int, num_outputs: int, size: int, itemsize: int) -> Tiles:
    """Choose tiles for [num_rows, size] (``itemsize`` bytes each) times [num_outputs, size].T."""
    block_k = 128 if itemsize < 4 else 64
    num_blocks = -(-size // block_k)
    narrow = -(-num_outputs // MIN_BLOCK_N)
    per_split = max(num_blocks * narrow // _NUM_PROGRAMS, -(-num_blocks // _MAX_SPLITS))
    per_split = min(per_split, num_blocks)
    num_splits = -(-num_blocks // per_split)
    block_m = next((m for m in (16, 32, 64) if num_rows <= m), 128)
    is_wide = block_m > 16 and num_splits * -(-num_outputs // 128) >= _NUM_PROGRAMS // 2
    return Tiles(
        block_m=block_m,
        block_n=128 if is_wide else MIN_BLOCK_N,
        block_k=block_k,
        blocks_per_split=per_split,
        num_splits=num_splits,
        num_warps=8 if is_wide else 4,
        num_stages=4 if block_m <= 32 else 3 if itemsize < 4 else 2,
    )


def num_tiles(num_outputs: int) -> int:
    """Return the most tiles of a product of up to MAX_ROWS rows."""
    return -(-MAX_ROWS // 128) * -(-num_outputs // MIN_BLOCK_N)


_PIECE = 1 << 25
"""Weights that are dequantised at a time: they fit in the L2 cache."""


@triton.jit(do_not_specialize=["num_rows", "blocks_per_split"])
def _quantised_kernel(
    output,  # [num_rows, num_outputs] contiguous
    states,  # [num_rows, size], its last dimension contiguous
    weight,  # [num_outputs, size] contiguous
    scale,  # [num_outputs]
    bias,  # [num_outputs] or None
    partials,  # [num_tiles, NUM_SPLITS, BLOCK_N * BLOCK_M] float32, or None
    arrived,  # [num_tiles] int32: zero before and after the launch
    num_rows,
    num_outputs,
    size,
    row_stride,
    blocks_per_split,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    IS_RAGGED: tl.constexpr,
    DOT_TYPE: tl.constexpr,
):
    tile = tl.program_id(0)
    split = tl.program_id(1)
    num_row_tiles = tl.cdiv(num_rows, BLOCK_M)
    rows = tile % num_row_tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    outputs = tile // num_row_tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    # rows and outputs beyond the edge load the last valid one and are not stored
    near_rows = tl.minimum(rows, num_rows - 1).to(tl.int64)
    near_outputs = tl.minimum(outputs, num_outputs - 1).to(tl.int64)
    dims = tl.arange(0, BLOCK_K)
    first = split * blocks_per_split
    last = tl.minimum(first + blocks_per_split, tl.cdiv(size, BLOCK_K))
    w_lines = weight + near_outputs[:, None] * size
    x_lines = states + near_rows[None, :] * row_stride
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for block in range(first, last):
        columns = block * BLOCK_K + dims
        if IS_RAGGED:
            inside = columns < size
            w = tl.load(w_lines + columns[None, :], mask=inside[None, :], other=0.0)
            x = tl.load(x_lines + columns[:, None], mask=inside[:, None], other=0.0)
        else:
            w = tl.load(w_lines + columns[None, :])
            x = tl.load(x_lines + columns[:, None])
        acc = tl.dot(w.to(DOT_TYPE), x.to(DOT_TYPE), acc, input_precision="ieee")

    is_last = True
    if NUM_SPLITS > 1:
        lanes = tl.arange(0, BLOCK_N)[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
        mine = partials + tile.to(tl.int64) * (NUM_SPLITS * BLOCK_N * BLOCK_M) + lanes
        tl.store(mine + split * (BLOCK_N * BLOCK_M), acc)
        tl.debug_barrier()  # store all sums of this program before counting it
        is_last = tl.atomic_add(arrived + tile, 1, sem="acq_rel") == NUM_SPLITS - 1
    if is_last:
        if NUM_SPLITS > 1:
            tl.debug_barrier()  # read the other sums only after all programs are counted
            acc = tl.load(mine, cache_modifier=".cg")
            for i in tl.static_range(1, NUM_SPLITS):
                acc += tl.load(mine + i * (BLOCK_N * BLOCK_M), cache_modifier=".cg")
            tl.store(arrived + tile, 0)
        is_output = outputs < num_outputs
        y = acc * tl.load(scale + outputs, mask=is_output, other=0.0)[:, None]
        if bias is not None:
            y += tl.load(bias + outputs, mask=is_output, other=0.0).to(tl.float32)[:, None]
        tl.store(
            output + near_rows[None, :] * num_outputs + outputs[:, None],
            y.to(output.dtype.element_ty),
            mask=is_output[:, None] & (rows < num_rows)[None, :],
        )


def quantised_linear(
    states: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
    arrived: torch.Tensor,
) -> torch.Tensor:
    """Return ``states @ (weight * scale).T + bias``, [num_rows, num_outputs], as ``states``' type.

    ``states`` is [num_rows, size] with a contiguous last dimension, ``weight`` [num_outputs, size]
    int8 or float8_e4m3fn, ``scale`` [num_outputs] float32, ``bias`` [num_outputs]. ``arrived`` is
    ``num_tiles(num_outputs)`` int32 zeros; no other stream may use them at the same time.

    The result is deterministic: no float is added atomically. Up to MAX_ROWS rows, the order of
    summation does not depend on the number of rows, except within one tensor core instruction. More
    rows are multiplied by torch, with a dequantised copy of a piece of the matrix at a time.
    """
    num_rows, size = states.shape
    assert states.stride(1) == 1
    assert weight.is_contiguous()
    assert weight.shape[1] == size
    num_outputs = weight.shape[0]
    output = torch.empty((num_rows, num_outputs), dtype=states.dtype, device=states.device)
    if num_rows > MAX_ROWS:
        _multiply_pieces(output, states, weight, scale, bias)
    elif num_rows:
        _multiply_tiles(output, states, weight, scale, bias, arrived)
    return output


def _multiply_tiles(
    output: torch.Tensor,
    states: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
    arrived: torch.Tensor,
) -> None:
    num_rows, size = states.shape
    num_outputs = weight.shape[0]
    tiles = choose_tiles(num_rows, num_outputs, size, states.element_size())
    num_tiles = triton.cdiv(num_rows, tiles.block_m) * triton.cdiv(num_outputs, tiles.block_n)
    partials = None
    if tiles.num_splits > 1:
        shape = (num_tiles, tiles.num_splits, tiles.block_n * tiles.block_m)
        partials = torch.empty(shape, dtype=torch.float32, device=states.device)
    _quantised_kernel[(num_tiles, tiles.num_splits)](
        output,
        states,
        weight,
        scale,
        bias,
        partials,
        arrived,
        num_rows,
        num_outputs,
        size,
        states.stride(0),
        tiles.blocks_per_split,
        BLOCK_M=tiles.block_m,
        BLOCK_N=tiles.block_n,
        BLOCK_K=tiles.block_k,
        NUM_SPLITS=tiles.num_splits,
        IS_RAGGED=size % tiles.block_k != 0,
        DOT_TYPE=dot_type(states.dtype),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        enable_fp_fusion=True,
    )


def _multiply_pieces(
    output: torch.Tensor,
    states: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
) -> None:
    num_outputs, size = weight.shape
    step = max(1, _PIECE // size)
    scratch = torch.empty((min(step, num_outputs), size), dtype=states.dtype, device=states.device)
    for start in range(0, num_outputs, step):
        end = min(start + step, num_outputs)
        piece = scratch[: end - start]
        piece.copy_(weight[start:end]).mul_(scale[start:end, None])
        if bias is None:
            torch.mm(states, piece.t(), out=output[:, start:end])
        else:
            torch.addmm(bias[start:end], states, piece.t(), out=output[:, start:end])
