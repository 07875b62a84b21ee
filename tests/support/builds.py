"""The kernels as compiled for other CPUs, run on this one."""

import functools
from pathlib import Path

from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.compiler import compiled_library
from core.kernels.cpu.library import kernels, load

BUILDS: dict[str, tuple[str, ...]] = {
    "this CPU": (),
    "128 bits": ("-DROSE_WIDTH=4", "-O1"),
    "512 bits, pairs and bytes": (
        *("-DROSE_WIDTH=16", "-O1"),
        *("-DROSE_EMULATE_DOT", "-DROSE_EMULATE_BYTES"),
    ),
}
"""Flags of each build; less optimisation compiles faster. The compiler splits wide vectors for this
CPU. Instructions that multiply pairs of bfloat16 or four bytes have no such equivalent and are
emulated."""

_CPU = Path("/proc/cpuinfo")
_FEATURES = frozenset(_CPU.read_text("utf-8").split() if _CPU.is_file() else ())

if "avx2" in _FEATURES:
    BUILDS["AVX2"] = ("-march=haswell", "-O1")
if {"avx512bw", "avx512dq", "avx512vl"} <= _FEATURES:
    BUILDS["AVX512 without VNNI"] = ("-march=skylake-avx512", "-O1")


@functools.cache
def build(name: str) -> Kernels:
    """The kernels of one of ``BUILDS``. Needs a C++ compiler."""
    assert kernels() is not None
    flags = BUILDS[name]
    return load(compiled_library(more_flags=flags)) if flags else kernels()
