"""Products of packed weights alone, and rows of a packed matrix, for benchmarks and tests.

No step of the server calls these functions of the library: its products are stages of a layer.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_int, c_int64, c_void_p
from typing import Any

import torch

from core.kernels.cpu.bindings import Kernels, address
from core.kernels.cpu.linear import Epilogue, GroupedWeight, PackedWeight, padded_rows

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "rose_rounds_activations": (c_int,),
    "rose_activation_levels": (c_int,),
    "rose_activation_columns": (c_int,),
    "rose_rotate": (c_int, c_void_p, c_int64, c_int64, c_void_p),
    "rose_unpack_rows": (c_int, c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_void_p),
    "rose_linear": (
        *(c_int, c_int, c_void_p, c_int64, c_int64, c_int64, c_int64),
        *(c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p),
    ),
    "rose_grouped_linear": (
        *(c_int, c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64),
        *(c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p, c_int64),
    ),
}


@functools.cache
def _library(kernels: Kernels) -> ctypes.CDLL:
    for name, arguments in _SIGNATURES.items():
        function = getattr(kernels.library, name)
        function.argtypes = arguments
        function.restype = c_int64 if arguments == (c_int,) else None
    return kernels.library


def rounds_activations(kernels: Kernels, fmt: int) -> bool:
    """Whether a product rounds its input to bfloat16 for weights of this format; see vec.h."""
    return bool(_library(kernels).rose_rounds_activations(fmt))


def activation_levels(kernels: Kernels, fmt: int) -> tuple[int, int]:
    """The largest integer that a product rounds its input to, for weights of this format.

    The second number is how many columns of a row have a scale in common. Both are 0 if the input
    is not rounded to integers.
    """
    library = _library(kernels)
    return library.rose_activation_levels(fmt), library.rose_activation_columns(fmt)


def rotated(kernels: Kernels, fmt: int, x: torch.Tensor) -> torch.Tensor:
    """Contiguous float32 rows ``[n, k]`` as a product rounds them, beside weights of this format.

    It is an orthogonal transform where int8 weights meet activations of 8 bits; see rotate.h.
    Elsewhere it is ``x``.
    """
    assert x.is_contiguous(), x.stride()
    y = torch.empty_like(x)
    _library(kernels).rose_rotate(fmt, x.data_ptr(), *x.shape, y.data_ptr())
    return y


def multiply(
    weight: PackedWeight,
    x: torch.Tensor,
    epilogue: Epilogue = Epilogue.NONE,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``epilogue(x @ weight.T + bias)``, ``[..., num_rows]`` or half of that if gated.

    ``x`` is contiguous float32 ``[..., num_columns]``. ``out``, if given, is float32 of that shape.
    Its rows are contiguous, and they are equally far apart.
    """
    assert x.shape[-1] == weight.num_columns, (x.shape, weight.num_columns)
    assert x.dtype is torch.float32
    assert x.is_contiguous(), x.stride()
    width = weight.num_rows // 2 if epilogue.is_gated else weight.num_rows
    y = torch.empty((*x.shape[:-1], width)) if out is None else out
    count, first = x.numel() // weight.num_columns, y.data_ptr()
    stride = y.stride(-2) if y.dim() > 1 else width
    part: PackedWeight | None = weight
    while part is not None and count:
        _library(part.kernels).rose_linear(
            *(part.format, epilogue, x.data_ptr(), part.num_columns, count),
            *(part.num_columns, part.own_rows, part.data.data_ptr()),
            *(address(part.scale), address(part.bias), first, stride, None),
        )
        first += 4 * part.own_rows
        part = part.more
    return y


def multiply_groups(
    weight: GroupedWeight, x: torch.Tensor, ends: torch.Tensor, epilogue: Epilogue = Epilogue.NONE
) -> torch.Tensor:
    """Return ``epilogue(x @ weight[group].T + bias[group])`` for rows sorted by group.

    ``x`` is contiguous float32 ``[count, num_columns]``. The rows of group i end before
    ``ends[i]``, int64 and at most ``count``. The result of rows after the last group is undefined.
    """
    assert x.shape[1] == weight.num_columns, (x.shape, weight.num_columns)
    assert len(ends) == weight.num_groups, (len(ends), weight.num_groups)
    y = torch.empty(len(x), weight.num_rows // 2 if epilogue.is_gated else weight.num_rows)
    _library(weight.kernels).rose_grouped_linear(
        *(weight.format, epilogue, x.data_ptr(), ends.data_ptr(), weight.num_groups),
        *(weight.num_columns, weight.num_rows, weight.data.data_ptr(), weight.data.shape[1]),
        *(address(weight.scale), address(weight.bias)),
        *(padded_rows(weight.kernels, weight.num_rows), y.data_ptr(), y.shape[1]),
    )
    return y


def rows(weight: PackedWeight, ids: torch.Tensor) -> torch.Tensor:
    """Look up rows of a matrix of one part by int64 ``ids``: float32 ``[*ids.shape, columns]``."""
    assert weight.more is None
    ids = ids.contiguous()
    y = torch.empty((*ids.shape, weight.num_columns))
    _library(weight.kernels).rose_unpack_rows(
        *(weight.format, weight.data.data_ptr(), address(weight.scale), ids.data_ptr()),
        *(ids.numel(), weight.num_columns, y.data_ptr()),
    )
    return y
