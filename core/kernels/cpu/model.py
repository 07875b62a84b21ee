"""Argument structures of a whole language model. Mirror layer/model.h, which documents them."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int64, c_void_p

import torch

from core.kernels.cpu.bindings import address
from core.kernels.cpu.layer import Matrix, Norm
from core.kernels.cpu.linear import Format, PackedWeight

ANGLES = 256
"""Positions whose angles follow each other in memory. Mirrors ``ANGLES`` in layer/model.h."""

_PLAIN = {
    torch.float32: Format.FLOAT32,
    torch.bfloat16: Format.BFLOAT16,
    torch.float16: Format.FLOAT16,
}


class Table(ctypes.Structure):
    """Rows that are looked up by their number. Null data means that there is none."""

    _fields_ = (
        ("format", c_int64),
        ("is_packed", c_int64),
        ("data", c_void_p),
        ("scale", c_void_p),
        ("factor", c_double),
    )

    @classmethod
    def of_packed(cls, weight: PackedWeight, factor: float = 1.0) -> Table:
        """Point to the rows of a packed weight of one part, which the caller keeps alive."""
        assert weight.more is None
        return cls(weight.format, 1, weight.data.data_ptr(), address(weight.scale), factor)

    @classmethod
    def of_rows(cls, rows: torch.Tensor) -> Table | None:
        """Point to a contiguous tensor, which the caller keeps alive; None for other types."""
        if rows.dtype not in _PLAIN or not rows.is_contiguous():
            return None
        return cls(_PLAIN[rows.dtype], 0, rows.data_ptr(), None, 1.0)


class Angles(ctypes.Structure):
    """The angles of one kind of RoPE."""

    _fields_ = (
        ("rotated", c_int64),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
    )


class ModelCall(ctypes.Structure):
    """What a language model has before and after its decoder layers."""

    _fields_ = (
        ("tokens", Table),
        ("positions", Table),
        ("norm", Norm),
        ("head", Matrix),
        ("hidden", c_int64),
        ("num_tokens", c_int64),
        ("num_logits", c_int64),
        ("ids", c_void_p),
        ("places", c_void_p),
        ("chosen", c_void_p),
        ("angles", c_void_p),  # an array of Angles
        ("num_angles", c_int64),
        ("x", c_void_p),
        ("normed", c_void_p),
        ("logits", c_void_p),
        ("logits_stride", c_int64),
        ("best", c_void_p),
        ("embedding_norm", Norm),
        ("input_table", Table),
        ("input_projection", Matrix),
        ("input_norm", Norm),
        ("input_size", c_int64),
        ("inputs", c_void_p),
        ("logit_cap", c_double),
    )
