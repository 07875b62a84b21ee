"""The forward pass of a loaded model."""

from __future__ import annotations

from core.attention.base import AttentionBackend
from core.contract.config import EngineConfig
from core.model.forward import EagerForward, ForwardPass
from core.model.graphs.capture import CUDAGraphCapture
from core.model.graphs.forward import with_graphs
from core.model.last_tokens import LastTokens
from core.model.limits import Limits
from core.model.loader import LoadedModel


def build_forward(
    model: LoadedModel,
    attention: AttentionBackend,
    last_tokens: LastTokens | None,
    limits: Limits,
    config: EngineConfig,
) -> ForwardPass:
    """The pass to serve with: on CUDA, unless ``enforce_eager``, decode steps are CUDA graphs."""
    eager = EagerForward(model.module, attention, model.device, last_tokens)
    if model.device.type != "cuda" or config.enforce_eager:
        return eager
    return with_graphs(
        eager,
        CUDAGraphCapture(),
        max_num_seqs=limits.max_num_seqs,
        max_context=limits.max_model_len,
    )
