"""Argument structures of the kernels. They mirror the headers in source/attention and source/layer.

The headers document the fields.
"""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int64, c_void_p

import torch

from core.kernels.cpu.bindings import address
from core.kernels.cpu.linear import Epilogue, Format, GroupedWeight, PackedWeight, padded_rows

CACHE_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
"""Mirrors ``CacheType`` in source/attention/attention.h."""


class AttentionStep(ctypes.Structure):
    """Mirrors ``AttentionStep`` in source/attention/attention.h, which documents the fields."""

    _fields_ = (
        ("slots", c_void_p),
        ("positions", c_void_p),
        ("block_tables", c_void_p),
        ("items", c_void_p),
        ("row_tokens", c_void_p),
        ("row_slots", c_void_p),
        ("merge_tokens", c_void_p),
        ("merge_starts", c_void_p),
        ("partial", c_void_p),
        ("num_tokens", c_int64),
        ("table_stride", c_int64),
        ("num_items", c_int64),
        ("num_merges", c_int64),
        ("run_length", c_int64),
    )


class AttentionCall(ctypes.Structure):
    """Mirrors ``AttentionCall`` in source/attention/attention.h."""

    _fields_ = (
        ("step", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("key_scales", c_void_p),
        ("value_scales", c_void_p),
        ("type", c_int64),
        ("block_size", c_int64),
        ("num_heads", c_int64),
        ("num_kv_heads", c_int64),
        ("head_dim", c_int64),
        ("value_dim", c_int64),
        ("window", c_int64),
        ("scale", c_double),
        ("softcap", c_double),
        ("sinks", c_void_p),
        ("places", c_void_p),
        ("query", c_void_p),
        ("key", c_void_p),
        ("value", c_void_p),
        ("output", c_void_p),
        ("rounded", c_void_p),
        ("query_token", c_int64),
        ("query_head", c_int64),
        ("key_token", c_int64),
        ("key_head", c_int64),
        ("value_token", c_int64),
        ("value_head", c_int64),
        ("rounded_token", c_int64),
    )


MAX_PARTS = 4
"""Most parts of a matrix in several formats. Mirrors ``Products::MOST`` in
source/linear/products.h."""


class NormCall(ctypes.Structure):
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
    ) -> NormCall:
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


class MixtureCall(ctypes.Structure):
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
        ("query_norm", NormCall),
        ("kv_norm", NormCall),
        ("query_up", Matrix),
        ("kv_up", Matrix),
    )


class LayerStep(ctypes.Structure):
    """The fields of a LayerCall that change from step to step."""

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
        ("first_norm", NormCall),
        ("second_norm", NormCall),
        ("query_norm", NormCall),
        ("key_norm", NormCall),
        ("projections", Matrix),
        ("output", Matrix),
        ("up", Matrix),
        ("down", Matrix),
        ("mixture", ctypes.POINTER(MixtureCall)),  # which the structure keeps alive
        ("num_heads", c_int64),
        ("num_kv_heads", c_int64),
        ("head_dim", c_int64),
        ("value_dim", c_int64),
        ("applies_rope", c_int64),
        ("joins_heads", c_int64),
        ("step", c_void_p),
        ("post_mixer", NormCall),
        ("post_feed_forward", NormCall),
        ("residual_scale", c_double),
        ("is_parallel", c_int64),
        ("norms_each", c_int64),
        ("norms_rotated", c_int64),
        ("clip", c_double),
        ("temperature", c_double),
        ("temperature_length", c_int64),
        ("temperature_first", c_int64),
        ("value_norm", NormCall),
        ("value_scale", c_double),
        ("values_are_keys", c_int64),
        ("reuses_keys", c_int64),
        ("latent", ctypes.POINTER(Latent)),  # which the structure keeps alive
        ("input_up", Matrix),
        ("input_down", Matrix),
        ("input_norm", NormCall),
        ("first_input", c_int64),
        ("output_scale", c_double),
        ("gate", c_int64),
    )


ANGLES = 256
"""Positions whose angles follow each other in memory. Mirrors ``ANGLES`` in
source/layer/model.h."""

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
    """The parts of a language model before and after its decoder layers."""

    _fields_ = (
        ("tokens", Table),
        ("positions", Table),
        ("norm", NormCall),
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
        ("embedding_norm", NormCall),
        ("input_table", Table),
        ("input_projection", Matrix),
        ("input_norm", NormCall),
        ("input_size", c_int64),
        ("inputs", c_void_p),
        ("logit_cap", c_double),
    )


MIRRORS: dict[str, type[ctypes.Structure]] = {
    "Norm": NormCall,
    "Mixture": MixtureCall,
    **{
        mirror.__name__: mirror
        for mirror in (
            *(AttentionStep, AttentionCall, Matrix, Matrices, Latent, LayerStep, LayerCall),
            *(Table, Angles, ModelCall),
        )
    },
}
"""The structures by their names in C++."""
