"""The catalogue of fused modules for CUDA: fewer launches and larger products.

Query, key and value projections become one product, and so do gate and up of a gated block. Norms,
RoPE and activations become one operation each. Products add to the residual stream. Matrices may be
quantised.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import torch

from core.contract.config import Quantization
from core.fusion.linear import activation_pattern, linear_pattern, mlp_pattern, qkv_pattern
from core.fusion.norm import head_norm_pattern, norm_pattern
from core.fusion.ops import TritonOps
from core.fusion.proof import cuda_proof
from core.fusion.quantised import stack_for
from core.fusion.residual import residual_pattern
from core.fusion.rotary import rotary_pattern
from core.fusion.visitor import Attention, Visitor


@torch.inference_mode()
def fuse_for_cuda(
    model: Any, attention: Attention, ops: TritonOps, quantization: Quantization = "none"
) -> Counter[str]:
    """Replace what can be fused; returns counts by kind.

    ``model`` is a causal language model of transformers in evaluation mode. The originals' weights
    are freed one by one. With a ``quantization`` all linear layers are replaced, the output layer
    included. An embedding keeps its table, even if the output layer shared it.
    """
    stack = stack_for(quantization)
    hidden_size = model.config.get_text_config().hidden_size
    visitor = Visitor(model, attention, cuda_proof(model, quantization))
    visitor.visit_attention(partial(qkv_pattern, stack), partial(rotary_pattern, ops))
    visitor.visit_modules(
        partial(norm_pattern, ops),
        partial(mlp_pattern, ops, stack),
        activation_pattern,
        *([] if quantization == "none" else [partial(linear_pattern, stack)]),
    )
    visitor.visit_attention(
        partial(head_norm_pattern, ops, hidden_size), partial(residual_pattern, hidden_size)
    )
    return visitor.counts
