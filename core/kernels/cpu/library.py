"""The compiled kernels as Python functions over torch tensors.

Every function takes float32 activations on the CPU, sums up in float32, and returns new tensors.
Core thread only: the kernels share scratch memory, and torch's threads.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from ctypes import c_double, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch

from core.kernels.cpu.compiler import CompilationFailed, compiled_library

logger = logging.getLogger("roseinfer.core")

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "rose_panel": (),
    "rose_panel_bytes": (c_int, c_int64),
    "rose_rounds_activations": (c_int,),
    "rose_pack_linear": (c_int, c_void_p, c_int64, c_int64, c_void_p, c_void_p),
    "rose_unpack_rows": (c_int, c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_void_p),
    "rose_linear": (
        *(c_int, c_int, c_void_p, c_int64, c_int64, c_int64, c_int64),
        *(c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p),
    ),
    "rose_norm": (
        *(c_void_p, c_int64, c_int64, c_int64, c_int64, c_int64, c_int64),
        *(c_double, c_void_p, c_void_p, c_void_p),
    ),
    "rose_rotary": (
        *(c_void_p, c_int64, c_int64, c_int64, c_int64, c_int64, c_int64),
        *(c_void_p, c_void_p, c_void_p),
    ),
    "rose_argmax": (c_void_p, c_int64, c_int64, c_int64, c_void_p),
    "rose_attention": (c_void_p,),
    "rose_layer_begin": (c_void_p,),
    "rose_layer_end": (c_void_p,),
}


@functools.cache
def kernels() -> ctypes.CDLL | None:
    """The loaded library, or None (and one warning) where it cannot be had.

    Compiles it if need be, which takes about ten seconds.
    """
    try:
        return load(compiled_library())
    except CompilationFailed as error:
        logger.warning("no compiled kernels, torch's own are slower: %s", error)
        return None


def load(path: Path) -> ctypes.CDLL:
    """Load a compiled library and declare its functions. Raises CompilationFailed."""
    _share_openmp()
    try:
        library = ctypes.CDLL(str(path))
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = None
        for name in ("rose_panel", "rose_panel_bytes", "rose_rounds_activations"):
            getattr(library, name).restype = c_int64
    except (OSError, AttributeError) as error:
        raise CompilationFailed(f"cannot load {path}: {error}") from error
    return library


def _share_openmp() -> None:
    """Let the kernels find the OpenMP runtime that torch brought, and so share its threads."""
    torch.get_num_threads()
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if "libgomp" in path or "libiomp" in path or "libomp" in path:
            ctypes.CDLL("/" + path, mode=ctypes.RTLD_GLOBAL)
            return
    raise CompilationFailed("torch runs without an OpenMP runtime")


def address(tensor: torch.Tensor | None) -> int | None:
    """Where a tensor's first value lies; None stays None."""
    return None if tensor is None else tensor.data_ptr()
