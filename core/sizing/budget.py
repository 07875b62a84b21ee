"""The memory of the KV cache: what the operator gives it, or what the device has left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from core.attention.base import BackendFactory, MeasuredFactory
from core.contract.config import EngineConfig
from core.kv.layer_spec import LayerSpec
from core.load.executor import Attending
from core.load.loaded_model import LoadedModel
from core.run.graphs.sizes import LAUNCHES_BYTES, graphs_nbytes, piece_sizes
from core.run.limits import Limits
from core.sizing.largest_step import run_largest_step
from core.sizing.step_size import layer_nbytes, step_nbytes
from core.system import memory_ahead
from core.system.device_memory import CUDAMemory, cpu_budget, device_budget, enough_memory


def cache_budget(
    model: LoadedModel,
    hook: Attending,
    make_attention: BackendFactory,
    limits: Limits,
    config: EngineConfig,
    dtype: torch.dtype,
) -> Callable[[int], int]:
    """Return the bytes for a cache of ``dtype`` as a function of the context length.

    On a CPU, steps over longer contexts need more memory. Available memory is read once, here: all
    weights are packed, and what was touched for them in advance and not used is returned.
    """
    memory_ahead.end()
    fixed = config.kv_cache_memory
    if fixed is None and model.device.type == "cuda":
        largest_step = partial(run_largest_step, model, hook, make_attention, limits, dtype)
        fixed = _cuda_budget(model, limits, config, largest_step)
    if fixed is not None:
        return lambda _length: fixed
    return on_cpu(model, hook.layers, make_attention, limits)


def on_cpu(
    model: LoadedModel,
    layers: Sequence[LayerSpec],
    make_attention: BackendFactory,
    limits: Limits,
    *,
    to_load: int = 0,
) -> Callable[[int], int]:
    """As ``cache_budget``, from the memory of a CPU that ``to_load`` bytes of weights leave."""
    left = cpu_budget(step_nbytes(model, limits), to_load=to_load)
    if not isinstance(make_attention, MeasuredFactory):
        return lambda _length: left
    return lambda length: (
        left
        - make_attention.step_nbytes(
            layers, limits.max_num_batched_tokens, limits.max_num_seqs, length
        )
    )


def _cuda_budget(
    model: LoadedModel, limits: Limits, config: EngineConfig, largest_step: Callable[[], int]
) -> int:
    """Bytes that ``largest_step`` and the CUDA graphs leave; see ``device_budget``."""
    what = f"a step of {limits.max_num_batched_tokens} tokens; lower --max-num-batched-tokens"
    with enough_memory(what):
        budget = device_budget(
            CUDAMemory(model.device), config.gpu_memory_utilization, largest_step
        )
    return budget if config.enforce_eager else budget - _graphs_nbytes(model, limits)


def _graphs_nbytes(model: LoadedModel, limits: Limits) -> int:
    """Estimate the bytes that the CUDA graphs keep. They share what they compute with."""
    decodes = graphs_nbytes(
        max_num_seqs=limits.max_num_seqs, vocab_size=model.vocab_size, dtype=model.dtype
    )
    sizes = piece_sizes(limits.max_num_batched_tokens, model.num_parameters)
    logits = limits.max_num_seqs * model.vocab_size * model.dtype.itemsize
    return decodes + layer_nbytes(model, sizes[-1]) + logits + len(sizes) * LAUNCHES_BYTES
