"""Argument structures of the decoder layer kernels. Mirror layer/layer.h, which documents them."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int64, c_void_p

import torch

from core.kernels.cpu.bindings import address
from core.kernels.cpu.grouped import GroupedWeight
from core.kernels.cpu.linear import Epilogue, PackedWeight, padded_rows

MAX_PARTS = 4
"""Most parts of a matrix in several formats. Mirrors ``Products::MOST`` in layer/layer.cpp."""


class Norm(ctypes.Structure):
    """A null weight means that there is no norm."""

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
    """A matrix. Null data means that there is none."""

    @classmethod
    def of(
        cls,
        weight: PackedWeight,
        epilogue: Epilogue = Epilogue.NONE,
        slopes: torch.Tensor | None = None,
    ) -> Matrix:
        """Point to a packed weight, which the caller keeps alive.

        It has at most MAX_PARTS parts, and one for a gated epilogue. ``slopes`` are those of XIELU:
        float32 [2], of positive and of negative values.
        """
        assert weight.num_parts <= (1 if epilogue.is_gated else MAX_PARTS), weight.num_parts
        assert (slopes is not None) == (epilogue is Epilogue.XIELU), epilogue
        more = weight.more and ctypes.pointer(cls.of(weight.more, epilogue, slopes))
        return cls(
            weight.format,
            epilogue,
            weight.own_rows,
            weight.num_columns,
            weight.data.data_ptr(),
            address(weight.scale),
            address(weight.bias),
            more,
            address(slopes),
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
    ("slopes", c_void_p),
)


class Matrices(ctypes.Structure):
    """Matrices of one shape."""

    _fields_ = (("first", Matrix), ("bytes", c_int64), ("columns", c_int64))

    @classmethod
    def of(cls, weight: GroupedWeight, epilogue: Epilogue = Epilogue.NONE) -> Matrices:
        """Point to packed weights, which the caller keeps alive."""
        first = Matrix(
            weight.format,
            epilogue,
            weight.num_rows,
            weight.num_columns,
            weight.data.data_ptr(),
            address(weight.scale),
            address(weight.bias),
        )
        return cls(first, weight.data.shape[1], padded_rows(weight.kernels, weight.num_rows))


class Mixture(ctypes.Structure):
    """The feed-forward block of a mixture."""

    _fields_ = (
        ("router", Matrix),
        ("per_token", c_int64),
        ("normalises", c_int64),
        ("up", Matrices),
        ("down", Matrices),
        ("shared_up", Matrix),
        ("shared_down", Matrix),
        ("shared_gate", Matrix),
        ("is_sigmoid", c_int64),
        ("choice_bias", c_void_p),
        ("num_groups", c_int64),
        ("groups_chosen", c_int64),
        ("scale", c_double),
        ("weighs_input", c_int64),
    )


class Latent(ctypes.Structure):
    """Latent attention."""

    _fields_ = (
        ("query_rank", c_int64),
        ("kv_rank", c_int64),
        ("plain_dim", c_int64),
        ("query_norm", Norm),
        ("kv_norm", Norm),
        ("query_up", Matrix),
        ("kv_up", Matrix),
    )


class LayerStep(ctypes.Structure):
    """What changes from step to step."""

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
        ("positions", c_void_p),
        ("expanded", c_void_p),
        ("inputs", c_void_p),
        ("input_columns", c_int64),
    )


class LayerCall(ctypes.Structure):
    """A layer."""

    _fields_ = (
        ("first_norm", Norm),
        ("second_norm", Norm),
        ("query_norm", Norm),
        ("key_norm", Norm),
        ("projections", Matrix),
        ("output", Matrix),
        ("up", Matrix),
        ("down", Matrix),
        ("mixture", ctypes.POINTER(Mixture)),  # which the structure keeps alive
        ("num_heads", c_int64),
        ("num_kv_heads", c_int64),
        ("head_dim", c_int64),
        ("value_dim", c_int64),
        ("applies_rope", c_int64),
        ("joins_heads", c_int64),
        ("step", c_void_p),
        ("post_mixer", Norm),
        ("post_feed_forward", Norm),
        ("residual_scale", c_double),
        ("is_parallel", c_int64),
        ("norms_each", c_int64),
        ("norms_rotated", c_int64),
        ("clip", c_double),
        ("temperature", c_double),
        ("temperature_length", c_int64),
        ("temperature_first", c_int64),
        ("value_norm", Norm),
        ("value_scale", c_double),
        ("values_are_keys", c_int64),
        ("reuses_keys", c_int64),
        ("latent", ctypes.POINTER(Latent)),  # which the structure keeps alive
        ("input_up", Matrix),
        ("input_down", Matrix),
        ("input_norm", Norm),
        ("first_input", c_int64),
        ("output_scale", c_double),
        ("gate", c_int64),
    )
