"""The kernels as other kinds of CPU have them, computed on this one."""

import functools

from core.kernels.cpu.compiler import compiled_library
from core.kernels.cpu.library import Kernels, kernels, load

BUILDS: dict[str, tuple[str, ...]] = {
    "this CPU": (),
    "128 bits": ("-DROSE_WIDTH=4", "-O1"),
    "512 bits, bfloat16 in pairs": ("-DROSE_WIDTH=16", "-DROSE_EMULATE_DOT", "-O1"),
}
"""Flags of each, optimised less since that compiles sooner. The compiler makes narrower
instructions of wide vectors; the one that has no such equivalent (AVX512-BF16's) is written out."""


@functools.cache
def build(name: str) -> Kernels:
    """The kernels in one of ``BUILDS``; only where ``kernels()`` gives any."""
    assert kernels() is not None
    flags = BUILDS[name]
    return load(compiled_library(more_flags=flags)) if flags else kernels()
