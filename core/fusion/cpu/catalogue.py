"""The catalogue of fused modules for CPUs with compiled kernels."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import torch

from core.fusion.cpu.decoder import decoder_pattern
from core.fusion.cpu.head import head_pattern
from core.fusion.cpu.layer_pattern import LayerPattern
from core.fusion.cpu.linear import Packer, linear_pattern, qkv_pattern
from core.fusion.cpu.mlp import mlp_pattern
from core.fusion.cpu.norm import norm_pattern
from core.fusion.cpu.rotary import rotary_pattern
from core.fusion.visitor import Attention, Visitor
from core.kernels.cpu.library import Kernels
from core.kernels.cpu.linear import Format
from core.model.prequantised import is_quantised


@torch.inference_mode()
def fuse_for_cpu(kernels: Kernels, model: Any, attention: Attention, fmt: Format) -> Counter[str]:
    """Replace what the kernels compute, and convert the rest to float32; returns counts by kind.

    ``model`` is a causal language model of transformers on the CPU, in float32 or bfloat16 and in
    evaluation mode. Matrices are stored as ``fmt``, and the originals are freed one by one. Layers
    of a checkpoint that comes quantised stay and get float32 input; such a model is in float32.
    """
    packer = Packer(kernels, fmt)
    proof = packer.proof()
    visitor = Visitor(model, attention, proof)
    visitor.visit_model(partial(head_pattern, packer))
    visitor.visit_attention(
        LayerPattern(model, packer, proof),
        partial(qkv_pattern, packer),
        partial(rotary_pattern, kernels),
    )
    visitor.visit_modules(
        partial(mlp_pattern, packer),
        partial(linear_pattern, packer),
        partial(norm_pattern, kernels),
    )
    if not is_quantised(model):  # transformers refuses to convert a quantised model
        model.float()
    visitor.visit_model(partial(decoder_pattern, attention))
    return visitor.counts
