"""The patterns for attention and its layer, and for single modules, in the order of trials."""

from __future__ import annotations

from functools import partial

from torch import nn

from core.fusion.cpu.experts import experts_pattern
from core.fusion.cpu.layer_pattern import LayerPattern
from core.fusion.cpu.linear import linear_pattern, qkv_pattern
from core.fusion.cpu.mlp import mlp_pattern
from core.fusion.cpu.norm import norm_pattern
from core.fusion.cpu.rotary import rotary_pattern
from core.fusion.proof import Proof
from core.fusion.visitor import AttentionPattern, ModulePattern
from core.weights.packer import Packer


def expert_patterns(packer: Packer) -> tuple[ModulePattern, ...]:
    """Return the patterns of what layers contain when they are fused themselves."""
    return (partial(experts_pattern, packer),)


def module_patterns(packer: Packer) -> tuple[ModulePattern, ...]:
    """Return the patterns, which pack with ``packer``."""
    return (
        partial(mlp_pattern, packer),
        partial(linear_pattern, packer),
        partial(norm_pattern, packer.kernels),
    )


def attention_patterns(
    model: nn.Module, packer: Packer, proof: Proof
) -> tuple[AttentionPattern, ...]:
    """Return the patterns, which pack with ``packer`` and find norms with ``proof``."""
    return (
        LayerPattern(model, packer, proof),
        partial(qkv_pattern, packer),
        partial(rotary_pattern, packer.kernels),
    )
