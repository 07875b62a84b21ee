"""Steps over sequences that no request asked for, in given blocks of a KV cache."""

from __future__ import annotations

from collections.abc import Iterator

from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.scheduler import ScheduledSequence, SchedulerOutput
from core.state.sequence import Sequence


def dummy_sequence(
    length: int,
    params: SamplingParams,
    block_ids: Iterator[int],
    block_size: int,
    *,
    num_groups: int = 1,
) -> Sequence:
    """Return a sequence of ``length`` tokens with id 0, with blocks for all of them.

    A window group may have few blocks: there all tokens are in block 0.
    """
    request = EngineRequest(request_id="dummy", prompt_token_ids=(0,) * length, params=params)
    sequence = Sequence(request, seed=0, num_groups=num_groups)
    for _ in range(-(-length // block_size)):
        sequence.block_table.append(next(block_ids))
        for table in sequence.block_tables[1:]:
            table.append(0)
    return sequence


def dummy_step(sequences: list[Sequence], counts: list[int]) -> SchedulerOutput:
    """Return a step that computes the last ``counts[i]`` tokens of each sequence and samples."""
    scheduled = []
    for sequence, count in zip(sequences, counts, strict=True):
        sequence.num_computed_tokens = sequence.num_tokens - count
        scheduled.append(ScheduledSequence(sequence, count, samples=True))
    return SchedulerOutput(scheduled)
