"""The catalogue of fused modules for CPUs with compiled kernels."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import Any

import torch

from core.fusion.cpu.head import head_pattern
from core.fusion.cpu.language_model_candidate import model_patterns
from core.fusion.cpu.module_patterns import (
    attention_patterns,
    expert_patterns,
    module_patterns,
)
from core.fusion.cpu.weights import log_bytes, numbers_of_values, widen_small
from core.fusion.proof import cpu_proof
from core.fusion.visitor import Attention, Visitor
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.linear import Format
from core.kernels.cpu.threads import bind_threads
from core.model.prequantised import is_quantised
from core.weights.packer import Packer

logger = logging.getLogger("roseinfer.core")


def fuse_for_cpu(kernels: Kernels, model: Any, attention: Attention, fmt: Format) -> Counter[str]:
    """Replace as ``visit_for_cpu`` does; returns counts by kind."""
    return visit_for_cpu(kernels, model, attention, fmt).counts


@torch.inference_mode()
def visit_for_cpu(kernels: Kernels, model: Any, attention: Attention, fmt: Format) -> Visitor:
    """Replace what the kernels compute, and widen the rest; the visitor says what was replaced.

    ``model`` is a causal language model of transformers on the CPU, in float32 or bfloat16 and in
    evaluation mode. Matrices are stored as ``fmt``, and the originals are freed one by one. What no
    pattern knows becomes float32 if it is small. Layers
    of a checkpoint that comes quantised stay and get float32 input; such a model is in float32.
    """
    num_values, num_in_blocks = numbers_of_values(model)
    bind_threads(kernels)  # before the owners of panels pack them
    packer = Packer(kernels, fmt)
    proof = cpu_proof(
        is_int8=fmt is Format.INT8,
        rounds_activations=kernels.rounds_activations(fmt),
        has_blocks=num_in_blocks > 0,
    )
    visitor = Visitor(model, attention, proof)
    visitor.visit_model(partial(head_pattern, packer))
    visitor.visit_modules(*expert_patterns(packer))
    visitor.visit_attention(*attention_patterns(model, packer, proof))
    visitor.visit_modules(*module_patterns(packer))
    if not is_quantised(model):  # transformers refuses to convert a quantised model
        widen_small(model)
    visitor.visit_model(*model_patterns(kernels, attention))
    log_bytes(model, num_values, packer.nbytes)
    logger.debug("modules proved in %.2f s", visitor.seconds)
    return visitor
