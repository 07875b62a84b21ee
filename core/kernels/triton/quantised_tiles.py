"""Tile sizes of products with a quantised matrix.

They are computed, not tuned at run time: a CUDA graph needs them before its capture. They have not
been measured on a GPU. They aim at enough programs for the 132 multiprocessors of an H100, enough
bytes in flight to each, and no more reads of activations than of weights.
"""

from __future__ import annotations

from dataclasses import dataclass

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
