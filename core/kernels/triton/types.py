"""Operand types of matrix products, and whether Triton interprets the kernels."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction


@triton.jit
def _empty_kernel():
    pass


IS_INTERPRETED = not isinstance(_empty_kernel, JITFunction)
"""True if Triton's interpreter runs the kernels, on any device (TRITON_INTERPRET=1)."""

_DOT_TYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
}


def dot_type(dtype: torch.dtype) -> Any:
    """Operand type for activations of ``dtype``.

    In the interpreter it is float32: the interpreter stores bfloat16 as integers and cannot
    multiply it.
    """
    return tl.float32 if IS_INTERPRETED else _DOT_TYPES[dtype]
