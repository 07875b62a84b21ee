"""try_path: which path would compute a model, without loading its weights.

The first layers of the model, at least one of each kind, are made with random weights, beside a
small vocabulary. They are fused and proved as at load.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn

from core.contract.config import EngineConfig, ModelConfig
from core.contract.info import ONE_CALL, ModelPath
from core.executors.described import described
from core.fusion.accelerate import accelerate, quantise_to_4_bits
from core.fusion.path import path_in_turn
from core.model.devices import pick_device
from core.model.hook import AttentionHook
from core.model.prequantised import quantisation_of
from core.model.proof.few_layers import FewLayers
from core.models.spec import Undescribed
from core.skeleton import build_skeleton

logger = logging.getLogger("roseinfer.core")

_VOCAB_SIZE = 64

_MAX_PARAMETERS = 1_000_000_000
"""Most parameters that get memory."""


def try_path(model_config: ModelConfig, config: EngineConfig) -> ModelPath:
    """Fuse the first layers of a model on a CPU.

    Raises ModelLoadError, and NotImplementedError where it cannot be tried.
    """
    try:
        described(model_config, config.attention_backend)
    except Undescribed as error:
        logger.debug("transformers computes the model: %s", error)
    else:
        return ModelPath(name=ONE_CALL, expected=ONE_CALL)
    device = pick_device(model_config.device)
    if device.type != "cpu":
        raise NotImplementedError("the path on a GPU is not tried")
    model = build_skeleton(model_config, device, needs_weights=False).model
    module: Any = model.module
    if quantisation_of(module.config) is not None:
        raise NotImplementedError("the path of a quantised checkpoint is not tried")
    hook = AttentionHook(module)
    with FewLayers(module, hook.modules, hook.layers).installed(), torch.inference_mode():
        _shrink_vocabulary(module)
        if sum(parameter.numel() for parameter in module.parameters()) > _MAX_PARAMETERS:
            raise NotImplementedError("its layers are too large to try the path")
        _fill(module)
        quantise_to_4_bits(model, model_config.quantization)
        done = accelerate(model, AttentionHook(module), model_config.quantization)
    backend: str = config.attention_backend
    if backend in ("auto", done.attention_backend):
        return done.path
    return path_in_turn(done.path, backend)


def _shrink_vocabulary(module: Any) -> None:
    """Replace plain tables of tokens by small ones; an embedding may have fewer rows."""
    embedding, head = module.get_input_embeddings(), module.get_output_embeddings()
    if type(embedding) is not nn.Embedding or type(head) is not nn.Linear:
        return
    dtype, has_bias = head.weight.dtype, head.bias is not None
    rows = _VOCAB_SIZE - (embedding.num_embeddings < head.out_features)
    module.set_input_embeddings(nn.Embedding(rows, embedding.embedding_dim, dtype=dtype))
    small = nn.Linear(head.in_features, _VOCAB_SIZE, bias=has_bias, dtype=dtype)
    module.set_output_embeddings(small)
    module.requires_grad_(False)


def _fill(module: nn.Module) -> None:
    """Give every parameter random values; those of norms are near 1."""
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        parameter.normal_(std=0.02, generator=generator)
        if parameter.dim() == 1:
            parameter.add_(1.0)
