"""The memory of the KV cache: what the operator gives it, or what the device has left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from core.attention.base import BackendFactory, GraphableBackend, MeasuredFactory
from core.contract.config import EngineConfig
from core.contract.params import SamplingParams
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage
from core.load.executor import Attending
from core.load.layer_configs import layer_configs, number
from core.load.loaded_model import LoadedModel
from core.run.dummy_step import dummy_sequence, dummy_step
from core.run.forward import EagerForward
from core.run.graphs.sizes import LAUNCHES_BYTES, graphs_nbytes, piece_sizes
from core.run.limits import Limits
from core.run.runner import ModelRunner
from core.sampling.sampler import Sampler
from core.system import memory_ahead
from core.system.device_memory import CUDAMemory, cpu_budget, device_budget, enough_memory

_WIDE = 4
"""Bytes of a float32 value, the widest type that steps compute in."""

_LOGITS_COPIES = 3
"""Logits, their log-probabilities, and one copy that a model's own head makes of the logits."""

_SAMPLED_NBYTES = 32
"""Bytes of each entry of a sampled row: sorted values and ids, probabilities, their sums, masks."""

_HIDDEN_COPIES = 8
"""Residual, its norm, queries, keys, values, their rotated copies, and attention's output."""

_INNER_COPIES = 4
"""Gate, up, the activated gate, and the product."""

_EXPERT_ROWS = 2
"""Rows of hidden_size of a token for each of its experts: its input and its output."""


def step_nbytes(model: LoadedModel, limits: Limits) -> int:
    """Return the most bytes of a step, without weights, KV cache and attention.

    The largest step computes prompt log-probabilities, so it has the logits of every token, and
    samples for all sequences. Layers run one after the other, and the logits after the last.
    """
    num_tokens = limits.max_num_batched_tokens
    logits = _LOGITS_COPIES * num_tokens * model.vocab_size * _WIDE
    samples = limits.max_num_seqs * model.vocab_size * _SAMPLED_NBYTES
    return max(layer_nbytes(model, num_tokens), logits + samples)


def layer_nbytes(model: LoadedModel, num_tokens: int) -> int:
    """Return the most bytes of one layer, without weights, KV cache and attention."""
    return num_tokens * max(map(_values_of_token, layer_configs(model.config))) * _WIDE


def _values_of_token(layer: object) -> int:
    hidden = number(layer, "hidden_size")
    num_experts = number(layer, "num_experts_per_tok")
    experts = num_experts * number(layer, "moe_intermediate_size")
    inner = max(number(layer, "intermediate_size") or 4 * hidden, experts)
    return (_HIDDEN_COPIES + _EXPERT_ROWS * num_experts) * hidden + _INNER_COPIES * inner


_PARAMS = SamplingParams(max_tokens=1, top_p=0.9, logprobs=0)
"""The sampling parameters that need most memory."""

_LONG_CONTEXT = 600
"""Tokens of the sequence that decodes: long enough for the decode kernel to split and merge."""


def run_largest_step(
    model: LoadedModel,
    hook: Attending,
    factory: BackendFactory,
    limits: Limits,
    kv_dtype: torch.dtype,
) -> int:
    """Compute ``max_num_batched_tokens`` prompt tokens, and sample for ``max_num_seqs`` sequences.

    The last sequence has a longer context if it computes one token only. The KV cache of the step
    is as small as possible; returns its bytes. Nothing of the step stays, so install an attention
    function in the hook afterwards.
    """
    counts = chunk_lengths(limits.max_num_batched_tokens, limits.max_num_seqs, limits.max_model_len)
    last = max(counts[-1], min(limits.max_model_len, _LONG_CONTEXT))
    lengths = [*counts[:-1], last]
    num_blocks = sum(-(-length // limits.block_size) for length in lengths)
    storage = KVStorage(
        hook.layers,
        num_blocks=num_blocks,
        block_size=limits.block_size,
        dtype=kv_dtype,
        device=model.device,
    )
    attention = factory(storage, hook.layers)
    hook.attach(attention)
    if isinstance(attention, GraphableBackend):  # it keeps the memory of its largest plan
        attention.decode_plan(limits.max_num_seqs, limits.max_model_len)
    runner = ModelRunner(
        EagerForward(model.module, attention, model.device), Sampler(processors=()), [storage]
    )
    block_ids = iter(range(num_blocks))
    sequences = [
        dummy_sequence(length, _PARAMS, block_ids, limits.block_size) for length in lengths
    ]
    try:
        runner.launch(dummy_step(sequences, counts)).collect()
    finally:
        hook.uninstall()  # it references the cache
    return sum(tensor.nbytes for tensor in storage.tensors)


def chunk_lengths(num_tokens: int, num_seqs: int, max_model_len: int) -> list[int]:
    """Distribute tokens: full prompts to the first sequences, one token to each other sequence."""
    lengths = []
    for num_after in reversed(range(num_seqs)):
        lengths.append(max(1, min(max_model_len, num_tokens - num_after)))
        num_tokens -= lengths[-1]
    return lengths


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
    return cpu_cache_budget(model, hook.layers, make_attention, limits)


def cpu_cache_budget(
    model: LoadedModel,
    layers: Sequence[LayerSpec],
    make_attention: BackendFactory,
    limits: Limits,
    *,
    to_load: int = 0,
) -> Callable[[int], int]:
    """Return ``cache_budget`` for the memory of a CPU that ``to_load`` bytes of weights leave."""
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
