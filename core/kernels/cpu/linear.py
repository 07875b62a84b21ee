"""Packed weights: matrices in the layout that the matrix kernel reads, alone or in groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch

from core.kernels.cpu.bindings import Kernels, address
from core.system import huge_pages

_SOURCES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""Types of weights that the kernel packs, by its number for them."""


class Format(IntEnum):
    """Storage type of weights. Sums are float32 for all of them."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2
    FLOAT16 = 3


class Epilogue(IntEnum):
    """Operation on the product before it is stored.

    The gated ones compute ``act(gate) * up`` and need a weight made by ``interleave``.
    """

    NONE = 0
    GELU_TANH = 1
    SILU = 2
    GELU = 3
    RELU = 4
    RELU2 = 5
    """The square of RELU."""
    XIELU = 6
    """With slopes; only as a part of a LayerCall."""
    GELU_TANH_GATE = 17
    SILU_GATE = 18
    GELU_GATE = 19
    RELU_GATE = 20
    RELU2_GATE = 21
    CLAMPED_GATE = 32
    """The gate of gpt-oss; see ``clamped_gate`` in source/linear/epilogue.h."""

    @property
    def is_gated(self) -> bool:
        """True if the result has half as many columns as the weight has rows."""
        return self >= Epilogue.GELU_TANH_GATE


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A matrix ``[num_rows, num_columns]`` in the kernel's layout, with its bias.

    A panel holds ``kernels.panel`` rows, interleaved by column. int8 has one scale per row.
    ``format`` is a Format or a BlockFormat. Further rows of the matrix may be in ``more``, in
    another format.
    """

    kernels: Kernels
    format: int
    own_rows: int
    num_columns: int
    data: torch.Tensor  # uint8, aligned to a cache line
    scale: torch.Tensor | None  # [rows of whole panels]
    bias: torch.Tensor | None  # [rows of whole panels]
    more: PackedWeight | None = None

    @property
    def num_rows(self) -> int:
        """Rows of the whole matrix."""
        return self.own_rows if self.more is None else self.own_rows + self.more.num_rows

    @property
    def num_parts(self) -> int:
        """Number of formats in a row: this one, and those of ``more``."""
        return 1 if self.more is None else 1 + self.more.num_parts

    @property
    def nbytes(self) -> int:
        """Bytes of the whole matrix."""
        return self.data.numel() + (0 if self.more is None else self.more.nbytes)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of matrices of one type in memory, in the order in which they are packed."""

    tensors: tuple[torch.Tensor, ...]  # of a type in _SOURCES, contiguous rows; kept alive
    addresses: npt.NDArray[np.int64]
    num_columns: int

    @classmethod
    def of(cls, weights: Sequence[torch.Tensor]) -> Rows:
        """Stack matrices ``[rows_i, num_columns]`` of any float type, mostly without a copy."""
        dtypes = {weight.dtype for weight in weights}
        is_read = len(dtypes) == 1 and dtypes <= _SOURCES.keys()
        tensors = tuple(weight if is_read else weight.float() for weight in weights)
        tensors = tuple(t if t.stride(1) == 1 else t.contiguous() for t in tensors)
        addresses = [
            t.data_ptr() + np.arange(len(t), dtype=np.int64) * t.stride(0) * t.itemsize
            for t in tensors
        ]
        return cls(tensors, np.concatenate(addresses), tensors[0].shape[1])

    def __len__(self) -> int:
        return len(self.addresses)


def pack(
    kernels: Kernels,
    weights: Sequence[torch.Tensor] | Rows,
    biases: list[torch.Tensor | None],
    fmt: Format,
) -> PackedWeight:
    """Pack stacked matrices ``[rows_i, num_columns]`` of any float type as one.

    Each bias is that of a matrix; Rows have one bias.
    """
    rows = weights if isinstance(weights, Rows) else Rows.of(weights)
    sizes = [len(rows)] if isinstance(weights, Rows) else [len(weight) for weight in weights]
    num_rows, num_columns = len(rows), rows.num_columns
    padded = padded_rows(kernels, num_rows)
    data = huge_pages.zeros(padded // kernels.panel * kernels.panel_bytes(fmt, num_columns))
    scale = torch.zeros(padded) if fmt is Format.INT8 else None
    pack_into(kernels, rows, fmt, data, scale)
    bias = padded_bias(kernels, sizes, biases)
    return PackedWeight(kernels, fmt, num_rows, num_columns, data, scale, bias)


def pack_into(
    kernels: Kernels, rows: Rows, fmt: Format, data: torch.Tensor, scale: torch.Tensor | None
) -> None:
    """Pack into ``data``, whose content is undefined, and write the scales of int8."""
    kernels.pack_rows(
        fmt,
        _SOURCES[rows.tensors[0].dtype],
        rows.addresses.ctypes.data,
        len(rows),
        rows.num_columns,
        data.data_ptr(),
        address(scale),
    )


def padded_bias(
    kernels: Kernels, sizes: list[int], biases: list[torch.Tensor | None]
) -> torch.Tensor | None:
    """Stack biases of ``sizes`` values, zeros for None, and pad them; None if there is none."""
    if all(bias is None for bias in biases):
        return None
    parts = [
        torch.zeros(size) if bias is None else bias.float()
        for size, bias in zip(sizes, biases, strict=True)
    ]
    stacked = torch.zeros(padded_rows(kernels, sum(sizes)))
    stacked[: sum(sizes)] = torch.cat(parts)
    return stacked


def padded_rows(kernels: Kernels, num_rows: int) -> int:
    """Rows of whole panels."""
    return -(-num_rows // kernels.panel) * kernels.panel


def interleave(kernels: Kernels, gate: torch.Tensor, up: torch.Tensor) -> Rows | None:
    """Alternate rows of ``gate`` and ``up`` in runs of half a panel, for the gated epilogues.

    Returns None if their shapes differ or their rows do not divide into such runs.
    """
    if gate.shape != up.shape or len(gate) % (kernels.panel // 2):
        return None
    stacked = Rows.of([gate, up])
    addresses = interleave_addresses(kernels, stacked.addresses)
    return Rows(stacked.tensors, addresses, stacked.num_columns)


def interleave_addresses(
    kernels: Kernels, addresses: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Order the addresses of the rows of gate, then up, as ``interleave`` does rows."""
    return addresses.reshape(2, -1, kernels.panel // 2).swapaxes(0, 1).reshape(-1)


def interleave_biases(
    kernels: Kernels, gate: torch.Tensor | None, up: torch.Tensor | None
) -> torch.Tensor | None:
    """Order biases as ``interleave`` does rows: float32 of both sizes; None if there are none.

    They are ``[..., num_rows]``, and ``num_rows`` divides into runs.
    """
    if gate is None and up is None:
        return None
    known = gate if gate is not None else up
    assert known is not None
    both = [torch.zeros_like(known) if bias is None else bias for bias in (gate, up)]
    shape = known.shape[:-1]
    runs = [bias.float().reshape(*shape, -1, kernels.panel // 2) for bias in both]
    return torch.stack(runs, dim=-2).reshape(*shape, -1)


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """Matrices ``[num_rows, num_columns]``, each packed like a PackedWeight, one per group.

    ``format`` is a Format or a BlockFormat.
    """

    kernels: Kernels
    format: int
    num_groups: int
    num_rows: int
    num_columns: int
    data: torch.Tensor  # uint8 [num_groups, bytes of a matrix]
    scale: torch.Tensor | None  # [num_groups, rows of whole panels]
    bias: torch.Tensor | None  # [num_groups, rows of whole panels]

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return self.data.numel()


def pack_groups(
    kernels: Kernels,
    weights: Iterable[torch.Tensor | Rows],
    bias: torch.Tensor | None,
    fmt: Format,
    shape: tuple[int, int, int],
) -> GroupedWeight:
    """Pack matrices of any float type, read one by one.

    ``shape`` is ``(num_groups, num_rows, num_columns)``; ``bias`` is ``[num_groups, num_rows]``.
    """
    num_groups, num_rows, num_columns = shape
    padded = padded_rows(kernels, num_rows)
    size = padded // kernels.panel * kernels.panel_bytes(fmt, num_columns)
    data = huge_pages.zeros(num_groups * size).view(num_groups, size)
    scale = torch.zeros(num_groups, padded) if fmt is Format.INT8 else None
    for group, weight in enumerate(weights):
        rows = weight if isinstance(weight, Rows) else Rows.of([weight])
        assert (len(rows), rows.num_columns) == (num_rows, num_columns), shape
        pack_into(kernels, rows, fmt, data[group], None if scale is None else scale[group])
    stored_bias = None if bias is None else padded_biases(kernels, bias)
    return GroupedWeight(kernels, fmt, num_groups, num_rows, num_columns, data, scale, stored_bias)


def padded_biases(kernels: Kernels, bias: torch.Tensor) -> torch.Tensor:
    """Biases ``[num_groups, num_rows]`` in float32, with zeros for the rows of whole panels."""
    padded = torch.zeros(len(bias), padded_rows(kernels, bias.shape[1]))
    padded[:, : bias.shape[1]] = bias
    return padded
