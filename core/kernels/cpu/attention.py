"""Argument structures of the paged attention kernel."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int64, c_void_p

import torch

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
