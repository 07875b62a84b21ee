"""Allocate the KV cache of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from core.attention.base import BackendFactory, MeasuredFactory
from core.contract.config import EngineConfig
from core.kv.storage import KVStorage, block_nbytes
from core.model.graphs.sizes import graphs_nbytes
from core.model.hook import AttentionHook
from core.model.largest_step import run_largest_step
from core.model.limits import Limits
from core.model.loaded_model import LoadedModel
from core.model.memory import (
    CUDAMemory,
    cpu_budget,
    device_budget,
    enough_memory,
    lowered_context,
    num_kv_blocks,
)
from core.model.step_size import step_nbytes


def kv_dtype(model: LoadedModel, config: EngineConfig) -> torch.dtype:
    """The type of keys and values."""
    return model.dtype if config.kv_cache_dtype == "auto" else torch.float8_e4m3fn


def make_cache(
    model: LoadedModel,
    hook: AttentionHook,
    make_attention: BackendFactory,
    limits: Limits,
    config: EngineConfig,
) -> tuple[KVStorage, Limits]:
    """Allocate as many blocks as memory allows and the limits need.

    Returns the cache and the limits. The context is lowered if memory is too small for the model's
    own and the operator named none. Raises ModelLoadError if there is no room for one sequence.
    """
    dtype = kv_dtype(model, config)
    nbytes = block_nbytes(hook.layers, limits.block_size, dtype)
    budget = _budget(model, hook, make_attention, limits, config)
    if config.max_model_len is None:
        length = lowered_context(
            limits.max_model_len, block_size=limits.block_size, block_nbytes=nbytes, budget=budget
        )
        limits = replace(limits, max_model_len=length)
    num_blocks = num_kv_blocks(
        block_nbytes=nbytes,
        block_size=limits.block_size,
        max_model_len=limits.max_model_len,
        max_num_seqs=limits.max_num_seqs,
        budget=budget(limits.max_model_len),
    )
    with enough_memory(f"{num_blocks} blocks of KV cache; lower --kv-cache-memory"):
        storage = KVStorage(
            hook.layers,
            num_blocks=num_blocks,
            block_size=limits.block_size,
            dtype=dtype,
            device=model.device,
        )
    return storage, limits


def _budget(
    model: LoadedModel,
    hook: AttentionHook,
    make_attention: BackendFactory,
    limits: Limits,
    config: EngineConfig,
) -> Callable[[int], int]:
    """Return the bytes for the cache as a function of the context length.

    On a CPU, steps over longer contexts need more memory. Available memory is read once, here.
    """
    fixed = config.kv_cache_memory
    if fixed is None and model.device.type == "cuda":
        fixed = _cuda_budget(model, hook, make_attention, limits, config)
    if fixed is not None:
        return lambda _length: fixed
    left = cpu_budget(step_nbytes(model, limits))
    if not isinstance(make_attention, MeasuredFactory):
        return lambda _length: left
    return lambda length: (
        left
        - make_attention.step_nbytes(
            hook.layers, limits.max_num_batched_tokens, limits.max_num_seqs, length
        )
    )


def _cuda_budget(
    model: LoadedModel,
    hook: AttentionHook,
    make_attention: BackendFactory,
    limits: Limits,
    config: EngineConfig,
) -> int:
    """Bytes that the largest step and the CUDA graphs leave."""

    def work() -> int:
        return run_largest_step(model, hook, make_attention, limits, kv_dtype(model, config))

    what = f"a step of {limits.max_num_batched_tokens} tokens; lower --max-num-batched-tokens"
    with enough_memory(what):
        budget = device_budget(CUDAMemory(model.device), config.gpu_memory_utilization, work)
    if not config.enforce_eager:
        budget -= graphs_nbytes(
            max_num_seqs=limits.max_num_seqs, vocab_size=model.vocab_size, dtype=model.dtype
        )
    return budget
