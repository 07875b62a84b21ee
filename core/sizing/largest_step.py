"""Memory profiling: run the largest possible step, to find what is left for the KV cache.

The step also compiles kernels that are compiled at first use.
"""

from __future__ import annotations

import torch

from core.attention.base import BackendFactory, GraphableBackend
from core.contract.params import SamplingParams
from core.kv.storage import KVStorage
from core.load.executor import Attending
from core.load.loaded_model import LoadedModel
from core.run.dummy_step import dummy_sequence, dummy_step
from core.run.forward import EagerForward
from core.run.limits import Limits
from core.run.runner import ModelRunner
from core.sampling.sampler import Sampler

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
    """Distribute tokens: full prompts to the first sequences, one token to each of the others."""
    lengths = []
    for num_after in reversed(range(num_seqs)):
        lengths.append(max(1, min(max_model_len, num_tokens - num_after)))
        num_tokens -= lengths[-1]
    return lengths
