"""Norms, rotary embedding, and the largest of many values."""

from __future__ import annotations

import ctypes

import torch

from core.kernels.cpu.library import address


def norm(
    library: ctypes.CDLL,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    eps: float,
    center: bool,
) -> torch.Tensor:
    """LayerNorm (``center``) or RMSNorm of ``x`` over its last dimension; float32, contiguous."""
    n = x.shape[-1]
    if x.dtype is not torch.float32 or not (x.is_contiguous() or _is_slice(x)):
        x = x.float().contiguous()
    y = torch.empty(x.shape)
    if x.is_contiguous():
        count, heads, outer, inner = x.numel() // n, 1, n, n
    else:
        count, heads, outer, inner = x.shape[1], x.shape[2], x.stride(1), x.stride(2)
    library.rose_norm(
        *(x.data_ptr(), count, heads, outer, inner, n, int(center), eps),
        *(weight.data_ptr(), address(bias), y.data_ptr()),
    )
    return y


def rotary(
    library: ctypes.CDLL, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Turn ``x`` [1, heads, tokens, n] by ``cos`` and ``sin`` [1, tokens, rotated], contiguous.

    Returns the same shape, laid out as ``[tokens, heads, n]``.
    """
    _, heads, tokens, n = x.shape
    y = torch.empty(tokens, heads, n)
    library.rose_rotary(
        *(x.data_ptr(), tokens, heads, x.stride(2), x.stride(1), n, cos.shape[-1]),
        *(cos.data_ptr(), sin.data_ptr(), y.data_ptr()),
    )
    return y.transpose(0, 1)[None]


def argmax(library: ctypes.CDLL, x: torch.Tensor) -> torch.Tensor:
    """Index of each row's maximum, the lowest one on ties; not a number counts as the maximum.

    ``x`` is float32 [num_rows, n]; returns int64 [num_rows].
    """
    x = x if x.stride(1) == 1 else x.contiguous()
    ids = torch.empty(len(x), dtype=torch.int64)
    library.rose_argmax(x.data_ptr(), len(x), x.stride(0), x.shape[1], ids.data_ptr())
    return ids


def _is_slice(x: torch.Tensor) -> bool:
    """Whether this is ``[1, count, heads, n]`` with whole heads, a matrix's columns."""
    return x.dim() == 4 and x.shape[0] == 1 and x.stride(3) == 1
