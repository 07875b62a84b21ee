"""Packed weights: matrices in the layout that the matrix kernel reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch

from core import huge_pages
from core.kernels.cpu.library import Kernels, address

_PIECE = 1 << 20
"""Values that are packed at a time, from a float32 copy that stays in the cache."""


class Format(IntEnum):
    """Storage type of weights. Sums are float32 for all of them."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2


class Epilogue(IntEnum):
    """Operation on the product before it is stored.

    The gated ones compute ``act(gate) * up`` and need a weight made by ``interleave``.
    """

    NONE = 0
    GELU_TANH = 1
    SILU = 2
    SILU_GATE = 3
    GELU_TANH_GATE = 4

    @property
    def is_gated(self) -> bool:
        """Whether the result has half as many columns as the weight has rows."""
        return self in (Epilogue.SILU_GATE, Epilogue.GELU_TANH_GATE)


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A matrix ``[num_rows, num_columns]`` in the kernel's layout, with its bias.

    A panel holds ``kernels.panel`` rows, interleaved by column. int8 has one scale per row.
    """

    kernels: Kernels
    format: Format
    num_rows: int
    num_columns: int
    data: torch.Tensor  # uint8, aligned to a cache line
    scale: torch.Tensor | None  # [rows of whole panels]
    bias: torch.Tensor | None  # [rows of whole panels]

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix."""
        return self.data.numel()

    def multiply(
        self,
        x: torch.Tensor,
        epilogue: Epilogue = Epilogue.NONE,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return ``epilogue(x @ weight.T + bias)``, ``[..., num_rows]`` or half of that if gated.

        ``x`` is ``[..., num_columns]``. ``out``, if given, is contiguous float32 of that shape.
        """
        assert x.shape[-1] == self.num_columns, (x.shape, self.num_columns)
        if x.dtype is not torch.float32 or not x.is_contiguous():
            x = x.float().contiguous()
        width = self.num_rows // 2 if epilogue.is_gated else self.num_rows
        shape = (*x.shape[:-1], width)
        y = torch.empty(shape) if out is None else out
        count = x.numel() // self.num_columns
        if count:
            self.kernels.linear(
                self.format,
                epilogue,
                x.data_ptr(),
                self.num_columns,
                count,
                self.num_columns,
                self.num_rows,
                self.data.data_ptr(),
                address(self.scale),
                address(self.bias),
                y.data_ptr(),
                width,
                None,
            )
        return y

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up rows of the matrix by int64 ``ids``: float32 ``[*ids.shape, num_columns]``."""
        ids = ids.contiguous()
        y = torch.empty((*ids.shape, self.num_columns))
        self.kernels.unpack_rows(
            self.format,
            self.data.data_ptr(),
            address(self.scale),
            ids.data_ptr(),
            ids.numel(),
            self.num_columns,
            y.data_ptr(),
        )
        return y


def pack(
    kernels: Kernels,
    weights: list[torch.Tensor],
    biases: list[torch.Tensor | None],
    fmt: Format,
) -> PackedWeight:
    """Stack matrices ``[rows_i, num_columns]`` of any float type and pack them as one."""
    num_columns = weights[0].shape[1]
    num_rows = sum(len(weight) for weight in weights)
    padded = padded_rows(kernels, num_rows)
    data = huge_pages.zeros(padded // kernels.panel * kernels.panel_bytes(fmt, num_columns))
    scale = torch.zeros(padded) if fmt is Format.INT8 else None
    pack_into(kernels, weights, fmt, data, scale)
    bias = None
    if any(b is not None for b in biases):
        bias = torch.zeros(padded)
        parts = [
            torch.zeros(len(w)) if b is None else b.float()
            for w, b in zip(weights, biases, strict=True)
        ]
        bias[:num_rows] = torch.cat(parts)
    return PackedWeight(kernels, fmt, num_rows, num_columns, data, scale, bias)


def pack_into(
    kernels: Kernels,
    weights: list[torch.Tensor],
    fmt: Format,
    data: torch.Tensor,
    scale: torch.Tensor | None,
) -> None:
    """Pack stacked matrices into ``data``, which is zero, and write the scales of int8.

    Reads float32 copies of limited size, so that a large matrix is never copied whole.
    """
    panel = kernels.panel
    num_columns = weights[0].shape[1]
    num_rows = sum(len(weight) for weight in weights)
    panel_bytes = kernels.panel_bytes(fmt, num_columns)
    step = max(1, _PIECE // (num_columns * panel)) * panel
    piece = torch.empty(min(step, num_rows), num_columns)
    for start in range(0, num_rows, step):
        count = min(step, num_rows - start)
        _copy_rows(weights, start, piece[:count])
        kernels.pack_linear(
            fmt,
            piece.data_ptr(),
            count,
            num_columns,
            data.data_ptr() + start // panel * panel_bytes,
            None if scale is None else scale[start:].data_ptr(),
        )


def padded_rows(kernels: Kernels, num_rows: int) -> int:
    """Rows of whole panels."""
    return -(-num_rows // kernels.panel) * kernels.panel


def interleave(kernels: Kernels, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor | None:
    """Alternate rows of ``gate`` and ``up`` in runs of half a panel, for the gated epilogues.

    Returns None if their shapes differ or their rows do not divide into such runs.
    """
    half = kernels.panel // 2
    if gate.shape != up.shape or len(gate) % half:
        return None
    shape = (len(gate) // half, half, *gate.shape[1:])
    return torch.stack([gate.reshape(shape), up.reshape(shape)], dim=1).view(-1, *gate.shape[1:])


def _copy_rows(weights: list[torch.Tensor], start: int, target: torch.Tensor) -> None:
    """Copy rows of the stacked matrices, from ``start`` on, to ``target``."""
    end, offset = start + len(target), 0
    for weight in weights:
        low, high = max(start - offset, 0), min(end - offset, len(weight))
        if low < high:
            target[low + offset - start : high + offset - start].copy_(weight[low:high])
        offset += len(weight)
