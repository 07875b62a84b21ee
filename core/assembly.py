"""From a loaded model to the runner of its steps: what suits the device is decided here."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, cast

from core.attention.base import BackendFactory, backend_factory
from core.contract.config import EngineConfig, Quantization
from core.contract.errors import ModelLoadError
from core.fusion.accelerate import accelerate
from core.model.cache import make_cache
from core.model.forward import EagerForward, ForwardPass
from core.model.graphs.capture import CUDAGraphCapture
from core.model.graphs.forward import with_graphs
from core.model.hook import AttentionHook
from core.model.last_tokens import LastTokens
from core.model.limits import Limits
from core.model.loader import LoadedModel
from core.model.runner import ModelRunner
from core.sampling.draw import load_row_draw
from core.sampling.processors.protocol import LogitsProcessor
from core.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Assembly:
    """A runner and what the engine has to know of it."""

    runner: ModelRunner
    num_blocks: int
    async_scheduling: bool
    description: str


def assemble(
    model: LoadedModel,
    processors: tuple[LogitsProcessor, ...],
    limits: Limits,
    config: EngineConfig,
    quantization: Quantization,
) -> Assembly:
    """Attention, cache, recordings and sampler around a model. Raises ModelLoadError."""
    is_cuda = model.device.type == "cuda"
    hook = AttentionHook(model.module)
    acceleration = accelerate(model, hook, quantization)
    backend: str = config.attention_backend
    if backend == "auto":
        backend = acceleration.attention_backend
    make_attention = _attention_factory(backend, model, config)
    storage = make_cache(model, hook, make_attention, limits, config)
    attention = make_attention(storage, hook.layers)
    hook.install(attention.forward)
    last_tokens = LastTokens(limits.max_num_seqs, model.device) if is_cuda else None
    eager = EagerForward(model.module, attention, model.device, last_tokens)
    forward: ForwardPass = eager
    if is_cuda and not config.enforce_eager:
        forward = with_graphs(
            eager,
            CUDAGraphCapture(),
            max_num_seqs=limits.max_num_seqs,
            max_context=limits.max_model_len,
        )
    draw = load_row_draw(model.vocab_size, model.dtype, model.device)
    sampler = Sampler(processors=processors, draw=draw)
    graphs = "" if forward is eager else " in CUDA graphs"
    return Assembly(
        runner=ModelRunner(forward, sampler, storage, last_tokens),
        num_blocks=storage.num_blocks,
        async_scheduling=is_cuda and config.async_scheduling,
        description=f"{acceleration.description}, attention {backend!r}{graphs}",
    )


def _attention_factory(backend: str, model: LoadedModel, config: EngineConfig) -> BackendFactory:
    """What makes the attention. Raises ModelLoadError if it cannot do what is asked for."""
    factory = backend_factory(backend)
    if config.kv_cache_dtype == "auto":
        return factory
    if backend != "triton" or model.device.type != "cuda":
        raise ModelLoadError(
            f"--kv-cache-dtype {config.kv_cache_dtype} needs CUDA and the attention backend "
            f"'triton', not {backend!r} on {model.device.type}"
        )
    return functools.partial(cast("Any", factory), dtype=model.dtype)
