"""kernels: the compiled library of this CPU."""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
from collections.abc import Callable
from ctypes import c_int64
from pathlib import Path
from typing import Any

import torch

from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.compiler import KernelsUnavailable, compiled_library
from core.kernels.cpu.structures import MIRRORS

logger = logging.getLogger("roseinfer.core")

MAPS = Path("/proc/self/maps")
"""Lists the libraries of this process."""


def kernels() -> Kernels | None:
    """Return the kernels, compiling them first if this CPU has none yet.

    Returns None and logs one warning with the reason if they are not available: torch's own
    kernels serve in their place.
    """
    found = kernels_or_reason()
    return found if isinstance(found, Kernels) else None


@functools.cache
def kernels_or_reason() -> Kernels | str:
    """Return the kernels as ``kernels`` does, or the reason why there are none."""
    try:
        return load(compiled_library())
    except Exception as error:  # noqa: BLE001 - whatever the reason, the server can do without
        reason = (" ".join(str(error).split()) or type(error).__name__)[:300]
        logger.warning("no compiled CPU kernels, torch's slower ones are used: %s", reason)
        return reason


def load(path: Path) -> Kernels:
    """Load a compiled library. Raises KernelsUnavailable."""
    _share_openmp()
    try:
        loaded = Kernels(path)
    except (OSError, AttributeError) as error:
        raise KernelsUnavailable(f"cannot load {path}: {error}") from error
    check_layouts(loaded.layout)
    return loaded


def _share_openmp() -> None:
    """Load torch's OpenMP runtime globally, so that the kernels use it and torch's threads."""
    torch.get_num_threads()  # loads the runtime
    for line in MAPS.read_text().splitlines():
        path = line.partition("/")[2]
        if "libgomp" in path or "libiomp" in path or "libomp" in path:
            ctypes.CDLL("/" + path, mode=ctypes.RTLD_GLOBAL)
            return
    raise KernelsUnavailable("torch runs without an OpenMP runtime")


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
        own = MIRRORS.get(name)
        if own is None or _layout(own) != (size.value, last.value):
            raise KernelsUnavailable(f"{name} differs between Python and the compiled kernels")
    if missing := sorted(MIRRORS.keys() - found):
        raise KernelsUnavailable(f"the compiled kernels have no {missing[0]}")


def _layout(mirror: Any) -> tuple[int, int]:
    """The size and the offset of the last field."""
    return ctypes.sizeof(mirror), getattr(mirror, mirror._fields_[-1][0]).offset
