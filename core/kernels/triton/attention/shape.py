"""KernelShape: the compile-time constants of one layer's attention kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.kv.layer_spec import LayerSpec

_LOG2_E = 1.4426950408889634

SMALLEST_TILE = 16
"""Fewest rows and columns of a matrix product on tensor cores."""

TILE_BYTES = 32 * 1024
"""Most bytes of the keys and values of one tile, in the type of the queries: they are held in
registers."""

BUFFER_BYTES = 64 * 1024
"""Bytes of keys and values in flight to one program. With two or three programs per multiprocessor
they hide the latency of memory."""

CHUNK_ROWS = 128
"""Rows (tokens times query heads per kv head) of one program of the chunk kernel."""


@dataclass(frozen=True, slots=True)
class KernelShape:
    """Compile-time constants of one layer. A name that ends in ``pad`` is a power of two."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    head_dim_pad: int
    value_dim_pad: int
    kv_heads_pad: int
    block_size: int
    scale: float
    window: int | None  # sliding window in tokens
    softcap: float  # bound of the scores, or 0: none
    decode_rows: int
    decode_tile: int  # tokens of the context per loop iteration
    decode_stages: int
    chunk_rows: int
    chunk_tile: int
    chunk_warps: int
    chunk_stages: int

    @property
    def score_scale(self) -> float:
        """Factor of the scores: into units of log2, unless they are capped first."""
        return self.scale if self.softcap else self.scale * _LOG2_E

    @property
    def group(self) -> int:
        """Query heads per kv head."""
        return self.num_heads // self.num_kv_heads

    @property
    def write_warps(self) -> int:
        """Warps of the write kernel: one thread moves eight values."""
        dims = max(self.head_dim_pad, self.value_dim_pad)
        return min(max(self.kv_heads_pad * dims // 256, 1), 8)

    @property
    def partial_size(self) -> int:
        """Floats of one head's partial result: values, maximum, sum. A multiple of 8."""
        return -(-(self.value_dim + 2) // 8) * 8

    @property
    def chunk_tokens(self) -> int:
        """Query tokens of one program of the chunk kernel."""
        return self.chunk_rows // self.group


def kernel_shape(
    spec: LayerSpec,
    *,
    block_size: int,
    dtype: torch.dtype,
    cache_dtype: torch.dtype,
    shared_memory: int,
    largest_tile: int,
) -> KernelShape:
    """Choose tile sizes for a layer.

    ``dtype`` is the type of the queries, ``shared_memory`` the most bytes of one program.
    ``largest_tile`` bounds the decode tile, which must not be longer than a split.
    """
    head_dim_pad = max(SMALLEST_TILE, power_of_two(spec.head_dim))
    value_dim_pad = max(SMALLEST_TILE, power_of_two(spec.value_dim))
    token_dims = head_dim_pad + value_dim_pad
    most = TILE_BYTES // power_of_two(token_dims * dtype.itemsize)
    tile = min(max(most, SMALLEST_TILE), 128)
    token_bytes = token_dims * cache_dtype.itemsize
    group = spec.num_heads // spec.num_kv_heads
    chunk_rows = CHUNK_ROWS if dtype.itemsize == 2 else CHUNK_ROWS // 4
    if token_dims > 256:
        chunk_rows //= 2
    chunk_rows = max(chunk_rows, power_of_two(group))
    chunk_tile = min(tile, 64)
    query_bytes = chunk_rows * head_dim_pad * dtype.itemsize
    return KernelShape(
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        value_dim=spec.value_dim,
        head_dim_pad=head_dim_pad,
        value_dim_pad=value_dim_pad,
        kv_heads_pad=power_of_two(spec.num_kv_heads),
        block_size=block_size,
        scale=spec.scale,
        window=spec.sliding_window,
        softcap=spec.softcap or 0.0,
        decode_rows=max(SMALLEST_TILE, power_of_two(group)),
        decode_tile=min(tile, largest_tile),
        decode_stages=_stages(shared_memory, tile * token_bytes),
        chunk_rows=chunk_rows,
        chunk_tile=chunk_tile,
        chunk_warps=8 if chunk_rows * token_dims >= 128 * 128 or dtype.itemsize == 4 else 4,
        chunk_stages=_stages(shared_memory - query_bytes, chunk_tile * token_bytes),
    )


def power_of_two(number: int) -> int:
    """Round ``number`` up to a power of two."""
    return 1 << (number - 1).bit_length()


def _stages(shared_memory: int, stage_bytes: int) -> int:
    """Pipeline stages: one plus the buffers that fit, with 8 KiB left for the compiler."""
    room = min(BUFFER_BYTES, shared_memory - 8 * 1024)
    return 1 + max(0, min(4, room // stage_bytes))
