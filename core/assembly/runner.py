"""The runner of a loaded model."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.assembly.attention import Instrument, attention_factory
from core.assembly.forward import build_forward, connect_hand_over
from core.contract.config import EngineConfig, Quantization
from core.fusion.accelerate import (
    Acceleration,
    accelerate,
    is_exact,
    is_in_blocks,
    quantise_to_4_bits,
)
from core.model.cache import KVCache, kv_dtype, make_cache
from core.model.hook import AttentionHook
from core.model.limits import Limits
from core.model.loaded_model import LoadedModel
from core.model.proof.engine_proof import EngineProof
from core.model.rope import fix_rope
from core.model.runner import ModelRunner
from core.model.warm_up import warm_up
from core.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class BuiltRunner:
    """A runner and its KV cache.

    ``acceleration`` is that with the attention that serves; ``description`` names the modules and
    the attention backend; ``num_threads`` are torch's on the CPU. ``limits`` have a lower context
    than wanted where memory is too little for the model's.
    """

    runner: ModelRunner
    cache: KVCache
    limits: Limits
    acceleration: Acceleration
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
    rope = fix_rope(model.module, limits.max_model_len)
    if config.threads is not None:
        torch.set_num_threads(config.threads)  # of this thread, which will run the steps
    quantise_to_4_bits(model, quantization)
    in_blocks, exact = is_in_blocks(model), is_exact(model, quantization)
    hook = AttentionHook(model.module)
    proof = EngineProof(model.module, hook)
    acceleration = accelerate(model, hook, quantization)
    backend: str = config.attention_backend
    if backend == "auto":
        backend = acceleration.attention_backend
    make_attention = attention_factory(backend, model, config)
    cache_dtype = kv_dtype(model, config, in_blocks=in_blocks and backend == "cpu")
    proof.run(make_attention, dtype=model.dtype, kv_dtype=cache_dtype, is_exact=exact)
    cache, limits = make_cache(model, hook, make_attention, limits, config, cache_dtype)
    rope.fix(limits.max_model_len)  # memory may have lowered it
    attention = cache.attention(make_attention)
    if instrument is not None:
        attention = instrument(model.module, attention)
    hook.attach(attention)
    forward = build_forward(model, hook, attention, limits, config)
    runner = ModelRunner(forward, sampler, cache.storages, forward.eager.last_tokens)
    warm_up(runner, limits)
    connect_hand_over(model.module, runner)
    served = acceleration.with_attention(model, backend)
    graphs = "" if forward is forward.eager else " in CUDA graphs"
    return BuiltRunner(
        runner=runner,
        cache=cache,
        limits=limits,
        acceleration=served,
        description=f"{served.description}{graphs}",
        num_threads=torch.get_num_threads(),
    )
