"""The runner of a loaded model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from core.assembly.accelerate import Acceleration, Instrument, accelerate, attention_factory
from core.assembly.forward import build_forward, connect_hand_over
from core.attention.base import BackendFactory
from core.contract.config import EngineConfig, Quantization
from core.contract.errors import ModelLoadError
from core.contract.info import ONE_CALL, ModelPath
from core.hook.hook import AttentionHook
from core.load.executor import Attending
from core.load.loaded_model import LoadedModel
from core.module.rope import fix_rope
from core.proof.engine_proof import EngineProof
from core.run.limits import Limits
from core.run.runner import ModelRunner
from core.run.warm_up import warm_up
from core.sampling.sampler import Sampler
from core.sizing.cache import KVCache, kv_dtype, make_cache


@dataclass(frozen=True, slots=True)
class BuiltRunner:
    """A runner and its KV cache.

    ``description`` names the modules and the attention backend; ``num_threads`` are torch's on the
    CPU. ``limits`` have a lower context than wanted where memory is too little for the model's.
    """

    runner: ModelRunner
    cache: KVCache
    limits: Limits
    path: ModelPath
    description: str
    num_threads: int


def build_runner(
    model: LoadedModel,
    sampler: Sampler,
    limits: Limits,
    config: EngineConfig,
    quantization: Quantization,
    instrument: Instrument | None = None,
) -> BuiltRunner:
    """Fuse the model's modules, allocate the KV cache, hook attention in, and warm up.

    Raises ModelLoadError.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)  # of this thread, which will run the steps
    served = _of_executor(model, config) or _of_module(model, limits, config, quantization)
    attending, backend, make_attention = served.attending, served.backend, served.make_attention
    cache, limits = make_cache(model, attending, make_attention, limits, config, served.cache_dtype)
    served.fix_length(limits.max_model_len)  # memory may have lowered it
    attention = cache.attention(make_attention)
    if instrument is not None:
        attention = instrument(model, attention)
    attending.attach(attention)
    forward = build_forward(model, attending, attention, limits, config)
    runner = ModelRunner(forward, sampler, cache.storages, forward.eager.last_tokens)
    if not warm_up(runner, limits) and model.executor is not None:  # modules have their proof
        raise ModelLoadError(
            f"{model.architecture} cannot be served: its forward pass gives NaN or infinite logits"
        )
    connect_hand_over(model, runner)
    graphs = "" if forward is forward.eager else " in CUDA graphs"
    return BuiltRunner(
        runner=runner,
        cache=cache,
        limits=limits,
        path=served.acceleration.path,
        description=f"{served.acceleration.description}, attention {backend!r}{graphs}",
        num_threads=torch.get_num_threads(),
    )


@dataclass(frozen=True, slots=True)
class _Served:
    """A model's computation and its attention, before there is a KV cache.

    ``fix_length`` settles RoPE for a context; ``backend`` is the name of the attention.
    """

    attending: Attending
    acceleration: Acceleration
    backend: str
    make_attention: BackendFactory
    cache_dtype: torch.dtype
    fix_length: Callable[[int], None]


def _of_executor(model: LoadedModel, config: EngineConfig) -> _Served | None:
    """The model's executor, if it has one."""
    executor = model.executor
    if executor is None:
        return None
    return _Served(
        executor,
        Acceleration("cpu", model.computation, ModelPath(name=ONE_CALL, expected=ONE_CALL)),
        "cpu",
        attention_factory("cpu", model, config),
        kv_dtype(model, config),
        executor.fix_length,
    )


def _of_module(
    model: LoadedModel, limits: Limits, config: EngineConfig, quantization: Quantization
) -> _Served:
    """transformers' module with some of its parts replaced, proved. Raises ModelLoadError."""
    rope = fix_rope(model.module, limits.max_model_len)
    hook = AttentionHook(model.module)
    proof = EngineProof(model.module, hook)
    acceleration = accelerate(model, hook, quantization)
    backend: str = config.attention_backend
    if backend == "auto":
        backend = acceleration.attention_backend
    make_attention = attention_factory(backend, model, config)
    cache_dtype = kv_dtype(model, config)
    is_exact = quantization == "none"
    proof.run(make_attention, dtype=model.dtype, kv_dtype=cache_dtype, is_exact=is_exact)
    return _Served(hook, acceleration, backend, make_attention, cache_dtype, rope.fix)
