"""Compares the structures of Python with those of the compiled library."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from ctypes import c_int64
from typing import Any

from core.kernels.cpu import attention, layer, model
from core.kernels.cpu.building import KernelsUnavailable

_MIRRORS: dict[str, type[ctypes.Structure]] = {
    mirror.__name__: mirror
    for mirror in (
        *(layer.Norm, layer.Matrix, layer.Matrices, layer.Mixture),
        *(layer.Latent, layer.LayerStep, layer.LayerCall),
        *(attention.AttentionStep, attention.AttentionCall),
        *(model.Table, model.Angles, model.ModelCall),
    )
}


def check_layouts(rose_layout: Callable[..., bytes | None]) -> None:
    """Raise KernelsUnavailable, with its name, if a structure is not what C++ reads.

    ``rose_layout`` is described in source/layer/layouts.cpp.
    """
    size, last = c_int64(), c_int64()
    found = set()
    for index in itertools.count():
        encoded = rose_layout(index, ctypes.byref(size), ctypes.byref(last))
        if encoded is None:
            break
        name = encoded.decode()
        found.add(name)
        own = _MIRRORS.get(name)
        if own is None or _layout(own) != (size.value, last.value):
            raise KernelsUnavailable(f"{name} differs between Python and the compiled kernels")
    if missing := sorted(_MIRRORS.keys() - found):
        raise KernelsUnavailable(f"the compiled kernels have no {missing[0]}")


def _layout(mirror: Any) -> tuple[int, int]:
    """The size and the offset of the last field."""
    return ctypes.sizeof(mirror), getattr(mirror, mirror._fields_[-1][0]).offset
