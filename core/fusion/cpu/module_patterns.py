"""The patterns for single modules, in the order in which they are tried."""

from __future__ import annotations

from functools import partial

from core.fusion.cpu.experts import experts_pattern
from core.fusion.cpu.linear import linear_pattern
from core.fusion.cpu.mlp import mlp_pattern
from core.fusion.cpu.norm import norm_pattern
from core.fusion.cpu.packer import Packer
from core.fusion.visitor import ModulePattern


def module_patterns(packer: Packer) -> tuple[ModulePattern, ...]:
    """Return the patterns, which pack with ``packer``."""
    return (
        partial(experts_pattern, packer),
        partial(mlp_pattern, packer),
        partial(linear_pattern, packer),
        partial(norm_pattern, packer.kernels),
    )
