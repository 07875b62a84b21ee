"""Weights in the blocks of GGUF files: packed for the kernels, quantised, and as values."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch

from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.linear import (
    GroupedWeight,
    PackedWeight,
    interleave_addresses,
    interleave_biases,
    padded_bias,
    padded_rows,
)
from core.system import huge_pages

Bytes = npt.NDArray[np.uint8]


class BlockFormat(IntEnum):
    """Storage type of weights in blocks: 100 and ggml's number. See source/gguf/block_formats.h."""

    Q4_0 = 102
    Q4_1 = 103
    Q5_0 = 106
    Q5_1 = 107
    Q8_0 = 108
    Q4_K = 112
    Q5_K = 113
    Q6_K = 114
    IQ4_NL = 120

    @classmethod
    def of(cls, code: int) -> BlockFormat | None:
        """Return the format with ggml's number, or None if the kernels do not know it."""
        return cls._value2member_map_.get(code + 100)  # type: ignore[return-value]


def pack_blocks(
    kernels: Kernels,
    fmt: BlockFormat,
    parts: list[Bytes],
    num_columns: int,
    biases: list[torch.Tensor | None],
    *,
    is_gated: bool = False,
) -> PackedWeight:
    """Stack matrices and lay them out anew; their values stay as they are.

    Each of ``parts`` is ``[num_rows, bytes of a row]``, as in a file. If they are gate and up of a
    gated epilogue, their rows alternate in runs of half a panel, and so do their biases.
    """
    for part in parts:
        _check(kernels, fmt, part, num_columns)
    rows = _addresses(kernels, parts, is_gated=is_gated)
    padded = padded_rows(kernels, len(rows))
    data = huge_pages.zeros(padded // kernels.panel * kernels.panel_bytes(fmt, num_columns))
    kernels.pack_blocks(fmt, rows.ctypes.data, len(rows), num_columns, data.data_ptr())
    sizes = [len(part) for part in parts]
    if is_gated:
        sizes, biases = [len(rows)], [interleave_biases(kernels, *biases)]
    bias = padded_bias(kernels, sizes, biases)
    return PackedWeight(kernels, fmt, len(rows), num_columns, data, None, bias)


def pack_block_groups(
    kernels: Kernels,
    fmt: BlockFormat,
    parts: list[Bytes],
    num_columns: int,
    num_groups: int,
    *,
    is_gated: bool = False,
) -> GroupedWeight:
    """Pack a matrix for each group, stacked as by ``pack_blocks`` from its rows of each part.

    Each of ``parts`` has the rows of all groups, one group after the other.
    """
    split = []
    for part in parts:
        _check(kernels, fmt, part, num_columns)
        split.append(part.reshape(num_groups, -1, part.shape[1]))
    num_rows = sum(part.shape[1] for part in split)
    panels = padded_rows(kernels, num_rows) // kernels.panel
    size = panels * kernels.panel_bytes(fmt, num_columns)
    data = huge_pages.zeros(num_groups * size).view(num_groups, size)
    for group in range(num_groups):
        rows = _addresses(kernels, [part[group] for part in split], is_gated=is_gated)
        kernels.pack_blocks(fmt, rows.ctypes.data, num_rows, num_columns, data[group].data_ptr())
    return GroupedWeight(kernels, fmt, num_groups, num_rows, num_columns, data, None, None)


def write_values(
    kernels: Kernels, fmt: BlockFormat, rows: Bytes, num_columns: int, out: torch.Tensor
) -> None:
    """Write the values of ``rows``, which are as in a file, to float32 [num_rows, num_columns]."""
    num_blocks = _check(kernels, fmt, rows, num_columns)
    assert out.shape == (len(rows), num_columns), (out.shape, num_columns)
    assert out.dtype is torch.float32
    assert out.is_contiguous()
    kernels.dequantise_blocks(fmt, rows.ctypes.data, num_blocks, out.data_ptr())


def quantise(kernels: Kernels, fmt: BlockFormat, weight: torch.Tensor) -> Bytes:
    """Quantise a finite float32 matrix ``[num_rows, num_columns]`` to rows as in a file.

    ``fmt`` is Q4_K, Q5_K, Q6_K, Q5_0 or Q8_0, and ``num_columns`` a multiple of its block.
    """
    num_rows, num_columns = weight.shape
    values_of_block = kernels.block_values(fmt)
    assert num_columns % values_of_block == 0, (fmt, num_columns)
    rows = np.empty((num_rows, num_columns // values_of_block * kernels.block_bytes(fmt)), np.uint8)
    weight = weight.contiguous()
    kernels.quantise_blocks(fmt, weight.data_ptr(), weight.numel(), rows.ctypes.data)
    return rows


def _addresses(kernels: Kernels, parts: list[Bytes], *, is_gated: bool) -> npt.NDArray[np.int64]:
    """Addresses of the rows of stacked matrices, in the order in which they are packed."""
    rows = np.concatenate(
        [
            part.ctypes.data + np.arange(len(part), dtype=np.int64) * part.strides[0]
            for part in parts
        ]
    )
    return interleave_addresses(kernels, rows) if is_gated else rows


def _check(kernels: Kernels, fmt: BlockFormat, rows: Bytes, num_columns: int) -> int:
    """Number of blocks of ``rows``; the kernels read them without asking."""
    blocks, rest = divmod(num_columns, kernels.block_values(fmt))
    assert not rest, (fmt, num_columns)
    assert rows.shape[1] == blocks * kernels.block_bytes(fmt), (rows.shape, num_columns)
    assert rows.flags.c_contiguous
    return len(rows) * blocks
