"""How a product with a quantised matrix is cut in tiles.

A table, not a search at run time: it must be known before a CUDA graph is recorded. Its numbers
were reasoned, not measured: enough programs for the 132 multiprocessors of an H100, enough bytes
on their way to each of them, and no more reads of the activations than of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_ROWS = 256
"""Most rows that are multiplied tile by tile; more are worth a dequantised copy of the matrix."""

MIN_BLOCK_N = 64
"""Fewest outputs of a tile: what the tensor cores of a warp group take at once."""

_NUM_PROGRAMS = 256
"""As many as are wanted: about two for each multiprocessor."""

_MAX_SPLITS = 8
"""The last program of a tile adds the others' sums, all of which it holds in registers."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tile sizes, and in how many runs of blocks the inner dimension is cut.

    ``block_k``, ``blocks_per_split`` and ``num_splits`` depend on the matrix alone: so the terms
    of a sum are added in the same order whatever the number of rows.
    """

    block_m: int
    block_n: int
    block_k: int
    blocks_per_split: int
    num_splits: int
    num_warps: int
    num_stages: int


def choose_tiles(num_rows: int, num_outputs: int, size: int, itemsize: int) -> Tiles:
    """Tiles for ``[num_rows, size]`` of ``itemsize`` bytes times ``[num_outputs, size]``."""
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
    """At most so many tiles does a product of up to MAX_ROWS rows have."""
    return -(-MAX_ROWS // 128) * -(-num_outputs // MIN_BLOCK_N)
