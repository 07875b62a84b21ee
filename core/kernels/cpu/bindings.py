"""Kernels: the Python bindings of a compiled library."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "rose_panel": (),
    "rose_panel_bytes": (c_int, c_int64),
    "rose_pack_rows": (c_int, c_int, c_void_p, c_int64, c_int64, c_void_p, c_void_p),
    "rose_block_values": (c_int,),
    "rose_block_bytes": (c_int,),
    "rose_pack_blocks": (c_int, c_void_p, c_int64, c_int64, c_void_p),
    "rose_dequantise_blocks": (c_int, c_void_p, c_int64, c_void_p),
    "rose_quantise_blocks": (c_int, c_void_p, c_int64, c_void_p),
    "rose_best": (c_void_p, c_int64, c_int64, c_int64, c_void_p),
    "rose_draw": (c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_void_p),
    "rose_bias": (c_void_p, c_int64, c_int64, c_void_p, c_int64),
    "rose_penalise": (c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_int64),
    "rose_logprobs": (c_void_p, c_int64, c_int64, c_int64, c_void_p, c_int64, c_void_p),
    "rose_attention": (c_void_p,),
    "rose_bind": (c_int64, c_void_p, c_void_p, c_void_p),
    "rose_layers": (c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_void_p),
    "rose_stage_name": (c_int64,),
    "rose_return_core": (c_void_p,),
    "rose_layout": (c_int64, c_void_p, c_void_p),
}

_RESULTS: dict[str, Any] = {
    "rose_panel": c_int64,
    "rose_panel_bytes": c_int64,
    "rose_block_values": c_int64,
    "rose_block_bytes": c_int64,
    "rose_stage_name": c_char_p,
    "rose_layout": c_char_p,
}

Function = Callable[..., None]
"""A C function, called without a Python frame between. The sources state its contract."""


class Kernels:
    """The compiled kernels. Core thread only: they share scratch memory and torch's threads.

    Activations are float32 on the CPU and sums are float32. ``attention`` takes the address of an
    AttentionCall, ``layers`` takes arrays of LayerCalls and AttentionCalls, their length, the
    address of a ModelCall or None, that of a LentCore's word or None, and that of a StageTimes'
    memory or None. ``return_core`` takes the address of a word and may be called on any thread.
    """

    def __init__(self, path: Path) -> None:
        """Load a compiled library. Raises OSError or AttributeError if it lacks a kernel."""
        library = ctypes.CDLL(str(path))
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = _RESULTS.get(name)
        self.library = library
        self.panel: int = library.rose_panel()
        self.panel_bytes: Callable[[int, int], int] = library.rose_panel_bytes
        """Bytes of ``panel`` rows of a packed weight, by its format and number of columns."""
        self.pack_rows: Function = library.rose_pack_rows
        self.block_values: Callable[[int], int] = library.rose_block_values
        self.block_bytes: Callable[[int], int] = library.rose_block_bytes
        self.pack_blocks: Function = library.rose_pack_blocks
        self.dequantise_blocks: Function = library.rose_dequantise_blocks
        self.quantise_blocks: Function = library.rose_quantise_blocks
        self.best: Function = library.rose_best
        self.draw: Function = library.rose_draw
        self.bias: Function = library.rose_bias
        self.penalise: Function = library.rose_penalise
        self.logprobs: Function = library.rose_logprobs
        self.attention: Callable[[int], None] = library.rose_attention
        self.layers: Function = library.rose_layers
        names = map(library.rose_stage_name, itertools.count())
        self.stage_names = tuple(name.decode() for name in itertools.takewhile(bool, names))
        """Names of the kinds of stages that ``layers`` measures."""
        self.return_core: Function = library.rose_return_core
        self.bind: Function = library.rose_bind
        self.layout: Callable[..., bytes | None] = library.rose_layout


def address(tensor: torch.Tensor | None) -> int | None:
    """Address of a tensor's first value; None stays None."""
    return None if tensor is None else tensor.data_ptr()
