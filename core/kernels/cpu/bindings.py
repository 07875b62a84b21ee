"""Kernels: the Python bindings of a compiled library."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from ctypes import c_char_p, c_double, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "rose_panel": (),
    "rose_panel_bytes": (c_int, c_int64),
    "rose_rounds_activations": (c_int,),
    "rose_activation_levels": (c_int,),
    "rose_activation_columns": (c_int,),
    "rose_rotate": (c_int, c_void_p, c_int64, c_int64, c_void_p),
    "rose_pack_rows": (c_int, c_int, c_void_p, c_int64, c_int64, c_void_p, c_void_p),
    "rose_unpack_rows": (c_int, c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_void_p),
    "rose_block_values": (c_int,),
    "rose_block_bytes": (c_int,),
    "rose_pack_blocks": (c_int, c_void_p, c_int64, c_int64, c_void_p),
    "rose_dequantise_blocks": (c_int, c_void_p, c_int64, c_void_p),
    "rose_quantise_blocks": (c_int, c_void_p, c_int64, c_void_p),
    "rose_linear": (
        *(c_int, c_int, c_void_p, c_int64, c_int64, c_int64, c_int64),
        *(c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p),
    ),
    "rose_grouped_linear": (
        *(c_int, c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64),
        *(c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p, c_int64),
    ),
    "rose_experts_sort": (
        *(c_void_p, c_int64, c_int64, c_int64),
        *(c_void_p, c_void_p, c_void_p),
    ),
    "rose_experts_sum": (c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p),
    "rose_norm": (
        *(c_void_p, c_int64, c_int64, c_int64, c_int64, c_int64, c_int64),
        *(c_double, c_void_p, c_void_p, c_void_p),
    ),
    "rose_rotary": (
        *(c_void_p, c_int64, c_int64, c_int64, c_int64, c_int64, c_int64),
        *(c_void_p, c_void_p, c_void_p),
    ),
    "rose_best": (c_void_p, c_int64, c_int64, c_int64, c_void_p),
    "rose_draw": (c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_void_p),
    "rose_bias": (c_void_p, c_int64, c_int64, c_void_p, c_int64),
    "rose_penalise": (c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_int64),
    "rose_logprobs": (c_void_p, c_int64, c_int64, c_int64, c_void_p, c_int64, c_void_p),
    "rose_attention": (c_void_p,),
    "rose_layer_begin": (c_void_p,),
    "rose_layer_end": (c_void_p,),
    "rose_bind": (c_int64, c_void_p, c_void_p, c_void_p),
    "rose_layers": (c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_void_p),
    "rose_stage_name": (c_int64,),
    "rose_return_core": (c_void_p,),
    "rose_layout": (c_int64, c_void_p, c_void_p),
}

_RESULTS: dict[str, Any] = {
    "rose_panel": c_int64,
    "rose_panel_bytes": c_int64,
    "rose_rounds_activations": c_int64,
    "rose_activation_levels": c_int64,
    "rose_activation_columns": c_int64,
    "rose_block_values": c_int64,
    "rose_block_bytes": c_int64,
    "rose_stage_name": c_char_p,
    "rose_layout": c_char_p,
}

Function = Callable[..., None]
"""A C function, called without a Python frame between. The sources state its contract."""

LayerFunction = Callable[[int], None]
"""A C function that takes the address of an argument structure."""


class Kernels:
    """The compiled kernels. Core thread only: they share scratch memory and torch's threads.

    Activations are float32 on the CPU and sums are float32. ``attention`` takes the address of an
    AttentionCall, ``layer_begin`` and ``layer_end`` take that of a LayerCall, ``layers`` takes
    arrays of both, their length, the address of a ModelCall or None, that of a LentCore's word or
    None, and that of a StageTimes' memory or None. ``return_core`` takes the address of a word and
    may be called on any thread.
    """

    def __init__(self, path: Path) -> None:
        """Load a compiled library. Raises OSError or AttributeError if it lacks a kernel."""
        library = ctypes.CDLL(str(path))
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = _RESULTS.get(name)
        self.panel: int = library.rose_panel()
        self.pack_rows: Function = library.rose_pack_rows
        self.unpack_rows: Function = library.rose_unpack_rows
        self.block_values: Callable[[int], int] = library.rose_block_values
        self.block_bytes: Callable[[int], int] = library.rose_block_bytes
        self.pack_blocks: Function = library.rose_pack_blocks
        self.dequantise_blocks: Function = library.rose_dequantise_blocks
        self.quantise_blocks: Function = library.rose_quantise_blocks
        self.linear: Function = library.rose_linear
        self.grouped_linear: Function = library.rose_grouped_linear
        self.experts_sort: Function = library.rose_experts_sort
        self.experts_sum: Function = library.rose_experts_sum
        self.best: Function = library.rose_best
        self.draw: Function = library.rose_draw
        self.bias: Function = library.rose_bias
        self.penalise: Function = library.rose_penalise
        self.logprobs: Function = library.rose_logprobs
        self.attention: LayerFunction = library.rose_attention
        self.layer_begin: LayerFunction = library.rose_layer_begin
        self.layer_end: LayerFunction = library.rose_layer_end
        self.layers: Function = library.rose_layers
        names = map(library.rose_stage_name, itertools.count())
        self.stage_names = tuple(name.decode() for name in itertools.takewhile(bool, names))
        """Of the kinds of stages that ``layers`` measures."""
        self.return_core: Function = library.rose_return_core
        self.bind: Function = library.rose_bind
        self.layout: Callable[..., bytes | None] = library.rose_layout
        self._panel_bytes: Callable[[int, int], int] = library.rose_panel_bytes
        self._rounds_activations: Callable[[int], int] = library.rose_rounds_activations
        self._activation_levels: Callable[[int], int] = library.rose_activation_levels
        self._activation_columns: Callable[[int], int] = library.rose_activation_columns
        self._rotate: Function = library.rose_rotate
        self._norm: Function = library.rose_norm
        self._rotary: Function = library.rose_rotary

    def panel_bytes(self, fmt: int, num_columns: int) -> int:
        """Bytes of a panel: ``panel`` rows of a packed weight with so many columns."""
        return self._panel_bytes(fmt, num_columns)

    def rounds_activations(self, fmt: int) -> bool:
        """Whether ``linear`` rounds its input to bfloat16 for weights of this format.

        It does so for bfloat16 weights on CPUs that multiply pairs of bfloat16; see simd/vec.h.
        transformers rounds the activations of a bfloat16 model on every machine.
        """
        return bool(self._rounds_activations(fmt))

    def activation_levels(self, fmt: int) -> tuple[int, int]:
        """The largest integer that ``linear`` rounds its input to, for weights of this format.

        The second number is how many columns of a row have a scale in common. Both are 0 if the
        input is not rounded to integers.
        """
        return self._activation_levels(fmt), self._activation_columns(fmt)

    def rotated(self, fmt: int, x: torch.Tensor) -> torch.Tensor:
        """Rows ``[n, k]`` as ``linear`` rounds them, beside weights of this format.

        They are float32. It is an orthogonal transform where int8 weights meet activations of 8
        bits; see source/linear/rotate.h. Elsewhere it is ``x``.
        """
        assert x.is_contiguous(), x.stride()
        y = torch.empty_like(x)
        self._rotate(fmt, x.data_ptr(), *x.shape, y.data_ptr())
        return y

    def norm(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        *,
        eps: float,
        center: bool,
    ) -> torch.Tensor:
        """LayerNorm (``center``) or RMSNorm over the last dimension of ``x``.

        ``weight`` and ``bias`` are contiguous float32. Returns contiguous float32.
        """
        n = x.shape[-1]
        assert len(weight) == n, (len(weight), n)
        if x.dtype is not torch.float32 or not (x.is_contiguous() or _is_slice(x)):
            x = x.float().contiguous()
        y = torch.empty(x.shape)
        if x.is_contiguous():
            count, heads, outer, inner = x.numel() // n, 1, n, n
        else:
            count, heads, outer, inner = x.shape[1], x.shape[2], x.stride(1), x.stride(2)
        self._norm(
            *(x.data_ptr(), count, heads, outer, inner, n, int(center), eps),
            *(weight.data_ptr(), address(bias), y.data_ptr()),
        )
        return y

    def rotary(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Apply RoPE to ``x`` [1, heads, tokens, n] with ``cos`` and ``sin`` [1, tokens, rotated].

        All are float32, ``cos`` and ``sin`` contiguous. Returns the shape of ``x``, laid out as
        ``[tokens, heads, n]``.
        """
        _, heads, tokens, n = x.shape
        y = torch.empty(tokens, heads, n)
        self._rotary(
            *(x.data_ptr(), tokens, heads, x.stride(2), x.stride(1), n, cos.shape[-1]),
            *(cos.data_ptr(), sin.data_ptr(), y.data_ptr()),
        )
        return y.transpose(0, 1)[None]


def address(tensor: torch.Tensor | None) -> int | None:
    """Address of a tensor's first value; None stays None."""
    return None if tensor is None else tensor.data_ptr()


def _is_slice(x: torch.Tensor) -> bool:
    """Whether ``x`` is ``[1, count, heads, n]`` with contiguous heads: columns of a matrix."""
    return x.dim() == 4 and x.shape[0] == 1 and x.stride(3) == 1
