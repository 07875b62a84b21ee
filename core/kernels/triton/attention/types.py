"""The type that matrix products take their operands in."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from triton.runtime.jit import JITFunction

from core.kernels.triton.attention.attend import attend_tile

IS_INTERPRETED = not isinstance(attend_tile, JITFunction)
"""Whether the kernels run in Triton's interpreter, on any device (TRITON_INTERPRET=1)."""

_DOT_TYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
}


def dot_type(dtype: torch.dtype) -> Any:
    """That of the queries; the interpreter cannot multiply bfloat16, which it holds as integers."""
    return tl.float32 if IS_INTERPRETED else _DOT_TYPES[dtype]
