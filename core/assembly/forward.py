"""The forward pass of a loaded model."""

from __future__ import annotations

from core.attention.base import AttentionBackend
from core.contract.config import EngineConfig
from core.model.forward import EagerForward, ForwardPass
from core.model.graphs.capture import CUDAGraphCapture
from core.model.graphs.forward import with_graphs
from core.model.last_tokens import LastTokens
from core.model.limits import Limits
from core.model.loaded_model import LoadedModel


def build_forward(
    model: LoadedModel,
    attention: AttentionBackend,
    limits: Limits,
    config: EngineConfig,
) -> ForwardPass:
    """The pass to serve with: on CUDA, unless ``enforce_eager``, decode steps are CUDA graphs."""
    is_cuda = model.device.type == "cuda"
    last_tokens = LastTokens(limits.max_num_seqs, model.device) if is_cuda else None
    eager = EagerForward(model.module, attention, model.device, last_tokens)
    if not is_cuda or config.enforce_eager:
        return eager
    return with_graphs(
        eager,
        CUDAGraphCapture(),
        max_num_seqs=limits.max_num_seqs,
        max_context=limits.max_model_len,
    )
