"""Argument structure of the decoder layer kernels."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int64, c_void_p

import torch

from core.kernels.cpu.library import address
from core.kernels.cpu.linear import Epilogue, PackedWeight

MAX_PARTS = 4
"""Most parts of a matrix in several formats. Mirrors ``Products::MOST`` in source/layer.cpp."""


class Norm(ctypes.Structure):
    """Mirrors ``Norm`` in source/layer.cpp. A null weight means that there is no norm."""

    _fields_ = (
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("center", c_int64),
        ("eps", c_double),
    )

    @classmethod
    def of(
        cls, weight: torch.Tensor, bias: torch.Tensor | None, *, eps: float, center: bool
    ) -> Norm:
        """Point to contiguous float32 tensors, which the caller keeps alive."""
        return cls(address(weight), address(bias), int(center), eps)


class Matrix(ctypes.Structure):
    """Mirrors ``Matrix`` in source/layer.cpp."""

    @classmethod
    def of(cls, weight: PackedWeight, epilogue: Epilogue = Epilogue.NONE) -> Matrix:
        """Point to a packed weight, which the caller keeps alive.

        It has at most MAX_PARTS parts, and one for a gated epilogue.
        """
        assert weight.num_parts <= (1 if epilogue.is_gated else MAX_PARTS), weight.num_parts
        more = None if weight.more is None else ctypes.pointer(cls.of(weight.more, epilogue))
        return cls(
            weight.format,
            epilogue,
            weight.own_rows,
            weight.num_columns,
            weight.data.data_ptr(),
            address(weight.scale),
            address(weight.bias),
            more,
        )


Matrix._fields_ = (
    ("format", c_int64),
    ("epilogue", c_int64),
    ("num_rows", c_int64),
    ("num_columns", c_int64),
    ("data", c_void_p),
    ("scale", c_void_p),
    ("bias", c_void_p),
    ("more", ctypes.POINTER(Matrix)),  # which the structure keeps alive
)


class LayerStep(ctypes.Structure):
    """Mirrors ``LayerStep`` in source/layer.cpp, which documents the fields."""

    _fields_ = (
        ("num_tokens", c_int64),
        ("rotated", c_int64),
        ("normed", c_void_p),
        ("projected", c_void_p),
        ("query", c_void_p),
        ("key", c_void_p),
        ("hidden", c_void_p),
        ("inner", c_void_p),
        ("attended", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("x", c_void_p),
        ("y", c_void_p),
    )


class LayerCall(ctypes.Structure):
    """Mirrors ``LayerCall`` in source/layer.cpp."""

    _fields_ = (
        ("first_norm", Norm),
        ("second_norm", Norm),
        ("query_norm", Norm),
        ("key_norm", Norm),
        ("projections", Matrix),
        ("output", Matrix),
        ("up", Matrix),
        ("down", Matrix),
        ("num_heads", c_int64),
        ("num_kv_heads", c_int64),
        ("head_dim", c_int64),
        ("value_dim", c_int64),
        ("applies_rope", c_int64),
        ("step", c_void_p),
    )
