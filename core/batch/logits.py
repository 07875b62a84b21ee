"""The logits of a step: which tokens need them, and which rows belong to which sequence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from core.sampling.result import Tokens
from core.scheduler import ScheduledSequence, SchedulerOutput
from core.system.pinned import upload

_NO_ROWS = range(0)


@dataclass(frozen=True, slots=True)
class Logits:
    """The logits of a step. The next step may overwrite them.

    ``best`` is the result of ``core.sampling.greedy.greedy_tokens``, if known. If the step wants
    the best tokens alone and they are known, what is in ``values`` may be undefined.
    """

    values: torch.Tensor  # [num_logits, vocab_size]
    best: Tokens | None = None  # int64 [num_logits]


@dataclass(frozen=True, slots=True)
class LogitsRows:
    """``sampling`` and ``scoring`` have one entry per scheduled sequence."""

    token_indices: list[int]  # of the step's tokens: those with logits, one row each
    sampling: list[int | None]  # the row to sample from, if the sequence samples
    scoring: list[range]  # the rows that predict prompt tokens with log-probabilities

    @classmethod
    def of(cls, scheduler_output: SchedulerOutput) -> LogitsRows:
        scheduled = scheduler_output.scheduled
        if all(
            item.num_tokens == 1 and item.samples and item.sequence.params.prompt_logprobs is None
            for item in scheduled
        ):
            all_rows = list(range(len(scheduled)))
            return cls(all_rows, [*all_rows], [_NO_ROWS] * len(all_rows))
        token_indices: list[int] = []
        sampling: list[int | None] = []
        scoring: list[range] = []
        start = 0
        for item in scheduled:
            rows = _NO_ROWS
            if num_scored := _num_scored(item):
                rows = range(len(token_indices), len(token_indices) + num_scored)
                token_indices += range(start, start + num_scored)
            scoring.append(rows)
            start += item.num_tokens
            if item.samples:
                sampling.append(len(token_indices))
                token_indices.append(start - 1)
            else:
                sampling.append(None)
        return cls(token_indices, sampling, scoring)

    def sampling_index(self, device: torch.device) -> torch.Tensor:
        """Return the rows to sample from, int64, on ``device``."""
        rows = [row for row in self.sampling if row is not None]
        return upload(np.array(rows, dtype=np.int64), device)


def _num_scored(item: ScheduledSequence) -> int:
    """Tokens of this chunk that predict a prompt token whose log-probability is requested."""
    sequence = item.sequence
    if sequence.params.prompt_logprobs is None:
        return 0
    return max(0, min(item.end, sequence.num_prompt_tokens - 1) - item.num_computed_tokens)
