"""A step as large as any: what it takes of the device's memory, the KV cache cannot have.

It also compiles, before the first request, what is compiled at first use.
"""

from __future__ import annotations

import torch

from core.attention.base import BackendFactory, GraphableBackend
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.kv.storage import KVStorage
from core.model.forward import EagerForward
from core.model.hook import AttentionHook
from core.model.loader import LoadedModel
from core.model.runner import ModelRunner
from core.sampling.sampler import Sampler
from core.scheduler import ScheduledSequence, SchedulerOutput
from core.sequence import Sequence

_PARAMS = SamplingParams(max_tokens=1, top_p=0.9, logprobs=0)
"""Of all ways to sample the one that takes most memory."""

_LONG_CONTEXT = 600
"""Tokens of the one sequence that decodes: long enough to be cut into splits and merged."""


def run_worst_step(
    model: LoadedModel,
    hook: AttentionHook,
    factory: BackendFactory,
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    max_model_len: int,
    block_size: int,
    kv_dtype: torch.dtype,
) -> int:
    """Compute prompts of ``max_num_batched_tokens`` tokens, and sample for all sequences.

    The last sequence, if it computes one token only, has a longer context.

    The KV cache of this step is as small as it can be; returns its bytes. Afterwards nothing of
    the step is left, and the hook is to be given the attention that is to be served with.
    """
    counts = _lengths(max_num_batched_tokens, max_num_seqs, max_model_len)
    lengths = [*counts[:-1], max(counts[-1], min(max_model_len, _LONG_CONTEXT))]
    num_blocks = sum(-(-length // block_size) for length in lengths)
    storage = KVStorage(
        hook.layers,
        num_blocks=num_blocks,
        block_size=block_size,
        dtype=kv_dtype,
        device=model.device,
    )
    attention = factory(storage, hook.layers)
    hook.install(attention.forward)
    if isinstance(attention, GraphableBackend):  # it keeps what its largest plan needs
        attention.decode_plan(max_num_seqs, max_model_len)
    runner = ModelRunner(
        EagerForward(model.module, attention, model.device), Sampler(processors=()), storage
    )
    free = iter(range(num_blocks))
    scheduled = []
    for i, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        sequence = Sequence(
            EngineRequest(request_id=str(i), prompt_token_ids=(0,) * length, params=_PARAMS),
            seed=i,
        )
        for _ in range(-(-length // block_size)):
            sequence.block_table.append(next(free))
        sequence.num_computed_tokens = length - count
        scheduled.append(ScheduledSequence(sequence, count, samples=True))
    try:
        runner.launch(SchedulerOutput(scheduled)).collect()
    finally:
        hook.uninstall()  # which held the cache
    return sum(tensor.nbytes for tensor in (*storage.keys, *storage.values))


def _lengths(num_tokens: int, num_seqs: int, longest: int) -> list[int]:
    """Part the tokens: to the first sequences as much as they can take, to the others one each."""
    lengths = []
    for num_after in reversed(range(num_seqs)):
        lengths.append(max(1, min(longest, num_tokens - num_after)))
        num_tokens -= lengths[-1]
    return lengths
