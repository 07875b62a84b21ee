"""Packed weights: laid out once as the matrix kernel reads them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum

import torch

from core.kernels.cpu.library import address

_ALIGNMENT = 64


class Format(IntEnum):
    """What weights are stored in. Products are summed up in float32 whatever it is."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2


class Epilogue(IntEnum):
    """What happens to the product before it is stored.

    The gated ones are ``act(gate) * up``, of a weight made by ``interleave``.
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

    A panel holds the same columns of ``rose_panel`` rows side by side; int8 has one scale a row.
    """

    library: ctypes.CDLL
    format: Format
    num_rows: int
    num_columns: int
    data: torch.Tensor  # uint8, starting at a cache line
    scale: torch.Tensor | None  # [rows of whole panels]
    bias: torch.Tensor | None  # [rows of whole panels]

    @property
    def nbytes(self) -> int:
        """Bytes that the matrix takes."""
        return self.data.numel()

    def multiply(
        self,
        x: torch.Tensor,
        epilogue: Epilogue = Epilogue.NONE,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return ``epilogue(x @ weight.T + bias)``, ``[..., num_rows]`` or half of that if gated.

        ``x`` is float32 ``[..., num_columns]``. ``out``, if given, is contiguous and big enough.
        """
        if x.dtype is not torch.float32 or not x.is_contiguous():
            x = x.float().contiguous()
        width = self.num_rows // 2 if epilogue.is_gated else self.num_rows
        shape = (*x.shape[:-1], width)
        y = torch.empty(shape) if out is None else out
        count = x.numel() // self.num_columns
        if count:
            self.library.rose_linear(
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
        """Rows of the matrix as float32, ``[*ids.shape, num_columns]``: an embedding look-up."""
        ids = ids.contiguous()
        y = torch.empty((*ids.shape, self.num_columns))
        self.library.rose_unpack_rows(
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
    library: ctypes.CDLL,
    weights: list[torch.Tensor],
    biases: list[torch.Tensor | None],
    fmt: Format,
) -> PackedWeight:
    """Pack matrices ``[rows_i, num_columns]`` of any float type one below the other.

    The float32 copy that the packing reads is made a piece at a time.
    """
    panel = library.rose_panel()
    num_columns = weights[0].shape[1]
    num_rows = sum(len(weight) for weight in weights)
    num_panels = -(-num_rows // panel)
    panel_bytes = library.rose_panel_bytes(fmt, num_columns)
    data = _aligned(num_panels * panel_bytes)
    scale = torch.zeros(num_panels * panel) if fmt is Format.INT8 else None
    step = max(1, (1 << 24) // (num_columns * panel)) * panel
    for start in range(0, num_rows, step):
        piece = _piece(weights, start, min(start + step, num_rows))
        library.rose_pack_linear(
            fmt,
            piece.data_ptr(),
            len(piece),
            num_columns,
            data.data_ptr() + start // panel * panel_bytes,
            None if scale is None else scale[start:].data_ptr(),
        )
    bias = None
    if any(b is not None for b in biases):
        bias = torch.zeros(num_panels * panel)
        parts = [
            torch.zeros(len(w)) if b is None else b.float()
            for w, b in zip(weights, biases, strict=True)
        ]
        bias[:num_rows] = torch.cat(parts)
    return PackedWeight(library, fmt, num_rows, num_columns, data, scale, bias)


def rounds_activations(library: ctypes.CDLL, fmt: Format) -> bool:
    """Whether what such weights are multiplied with is first rounded to bfloat16.

    So it is for bfloat16 weights where the CPU has instructions for products of two bfloat16
    (AVX512-BF16), as transformers does with a bfloat16 model on any machine.
    """
    return bool(library.rose_rounds_activations(fmt))


def interleave(library: ctypes.CDLL, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor | None:
    """Rows of both, taking turns as the gated epilogues want them; None if they do not divide."""
    half = library.rose_panel() // 2
    if gate.shape != up.shape or len(gate) % half:
        return None
    shape = (len(gate) // half, half, *gate.shape[1:])
    return torch.stack([gate.view(shape), up.view(shape)], dim=1).view(-1, *gate.shape[1:])


def _piece(weights: list[torch.Tensor], start: int, end: int) -> torch.Tensor:
    """Rows ``start`` to ``end`` of the matrices below each other, contiguous float32."""
    parts, offset = [], 0
    for weight in weights:
        low, high = max(start - offset, 0), min(end - offset, len(weight))
        if low < high:
            parts.append(weight[low:high].float())
        offset += len(weight)
    return torch.cat(parts).contiguous()


def _aligned(num_bytes: int) -> torch.Tensor:
    storage = torch.zeros(num_bytes + _ALIGNMENT, dtype=torch.uint8)
    start = -storage.data_ptr() % _ALIGNMENT
    return storage[start : start + num_bytes]
