"""The KV cache of a model: as large as memory or need allows."""

from __future__ import annotations

import torch

from core.attention.base import BackendFactory
from core.contract.config import EngineConfig
from core.kv.storage import KVStorage, block_nbytes
from core.model.graphs.sizes import graphs_nbytes
from core.model.hook import AttentionHook
from core.model.limits import Limits
from core.model.loader import LoadedModel
from core.model.memory import CUDAMemory, cpu_budget, device_budget, enough_memory, num_kv_blocks
from core.model.worst_step import run_worst_step


def kv_dtype(model: LoadedModel, config: EngineConfig) -> torch.dtype:
    """The type of keys and values."""
    return model.dtype if config.kv_cache_dtype == "auto" else torch.float8_e4m3fn


def make_cache(
    model: LoadedModel,
    hook: AttentionHook,
    make_attention: BackendFactory,
    limits: Limits,
    config: EngineConfig,
) -> KVStorage:
    """Take the memory. Raises ModelLoadError if it is too little for one sequence."""
    dtype = kv_dtype(model, config)
    budget = config.kv_cache_memory
    if budget is None and model.device.type == "cuda":
        budget = _cuda_budget(model, hook, make_attention, limits, config, dtype)
    num_blocks = num_kv_blocks(
        block_nbytes=block_nbytes(hook.layers, limits.block_size, dtype),
        block_size=limits.block_size,
        max_model_len=limits.max_model_len,
        max_num_seqs=limits.max_num_seqs,
        budget=cpu_budget() if budget is None else budget,
    )
    with enough_memory(f"{num_blocks} blocks of KV cache; lower --kv-cache-memory"):
        return KVStorage(
            hook.layers,
            num_blocks=num_blocks,
            block_size=limits.block_size,
            dtype=dtype,
            device=model.device,
        )


def _cuda_budget(
    model: LoadedModel,
    hook: AttentionHook,
    make_attention: BackendFactory,
    limits: Limits,
    config: EngineConfig,
    dtype: torch.dtype,
) -> int:
    """Bytes that the largest step and the recordings leave."""

    def work() -> int:
        return run_worst_step(
            model,
            hook,
            make_attention,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_num_seqs=limits.max_num_seqs,
            max_model_len=limits.max_model_len,
            block_size=limits.block_size,
            kv_dtype=dtype,
        )

    what = f"a step of {limits.max_num_batched_tokens} tokens; lower --max-num-batched-tokens"
    with enough_memory(what):
        budget = device_budget(CUDAMemory(model.device), config.gpu_memory_utilization, work)
    if not config.enforce_eager:
        budget -= graphs_nbytes(
            max_num_seqs=limits.max_num_seqs, vocab_size=model.vocab_size, dtype=model.dtype
        )
    return budget
