"""ModelRunner: a scheduler's decision in, sampled tokens out, in two phases: launch, collect."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from dataclasses import dataclass

import numpy as np
import torch

from core.contract.errors import GenerationFailed
from core.kv.storage import KVStorage
from core.model.forward import ForwardPass, Logits
from core.model.last_tokens import LastTokens
from core.model_input import build_model_input
from core.pinned import upload
from core.sampling.logprobs import PromptScores
from core.sampling.result import PendingTokens, SampledTokens, SequenceResult
from core.sampling.sampler import Sampler
from core.scheduler import ScheduledSequence, SchedulerOutput
from core.sequence import Sequence
from core.step_timer import StepTimer


class ModelRunner:
    """Runs one forward pass per step, and samples. Core thread only.

    ``last_tokens`` is where a step's tokens are kept for a step that is launched before they are
    collected; without it every step must be collected before the next launch.
    """

    def __init__(
        self,
        forward: ForwardPass,
        sampler: Sampler,
        storage: KVStorage,
        last_tokens: LastTokens | None = None,
    ) -> None:
        self._forward = forward
        self._sampler = sampler
        self._storage = storage
        self._last_tokens = last_tokens
        self.timer = StepTimer()

    def clear(self, block_ids: Ids[int]) -> None:
        """Make blocks that nobody holds harmless: what is no number would spread through masks."""
        self._storage.clear(block_ids)

    def launch(self, scheduler_output: SchedulerOutput) -> StepInFlight:
        """Tell the device to compute the step, without waiting for it."""
        sampling = [item.sequence for item in scheduler_output.scheduled if item.samples]
        self._sampler.prepare(sampling)
        self.timer.lap("masks")
        with torch.inference_mode():
            wanted = _LogitsWanted.of(scheduler_output)
            last = self._last_tokens
            batch = build_model_input(
                [(item.sequence, item.num_tokens) for item in scheduler_output.scheduled],
                wanted.token_indices,
                block_size=self._storage.block_size,
                rows_in_flight=None if last is None else last.rows,
            )
            self.timer.lap("inputs")
            logits = self._forward(batch)
            self.timer.lap("forward")
            scores = [
                _score_prompt(item, rows, logits.values) if rows else None
                for item, rows in zip(scheduler_output.scheduled, wanted.scoring_rows, strict=True)
            ]
            rows = [row for row in wanted.sampling_rows if row is not None]
            tokens = self._sample(logits, rows, sampling) if rows else None
            if last is not None and tokens is not None:
                last.keep(sampling, tokens.tokens)
            self.timer.lap("sampling")
            return StepInFlight(tokens, wanted.sampling_rows, scores)

    def _sample(self, logits: Logits, rows: list[int], sequences: list[Sequence]) -> PendingTokens:
        values, best = logits.values, logits.best
        if len(rows) < len(values):
            index = upload(np.array(rows, dtype=np.float64), values.device).long()
            values, best = values[index], None
        return self._sampler.launch(values, sequences, greedy_tokens=best)


class StepInFlight:
    """A step that the device was told to compute. Core thread only."""

    def __init__(
        self,
        tokens: PendingTokens | None,
        sampling_rows: list[int | None],
        scores: list[PromptScores | None],
    ) -> None:
        """``sampling_rows`` and ``scores`` have an entry for every sequence of the step."""
        self._tokens = tokens
        self._sampling_rows = sampling_rows
        self._scores = scores

    @property
    def must_land(self) -> bool:
        """Whether its tokens must be known to the host before the next step is launched."""
        return self._tokens is not None and self._tokens.must_land

    def collect(self) -> list[SequenceResult]:
        """Wait for the step; one result for every sequence of it."""
        sampled = iter(() if self._tokens is None else self._tokens.collect())
        return [
            _result(None if row is None else next(sampled), scores)
            for row, scores in zip(self._sampling_rows, self._scores, strict=True)
        ]


def _result(sampled: SampledTokens | None, scores: PromptScores | None) -> SequenceResult:
    """Join what the two kinds of rows gave; a prompt without scores fails its sequence."""
    if scores is None:
        return SequenceResult(sampled, [])
    try:
        return SequenceResult(sampled, scores.collect())
    except GenerationFailed:
        return SequenceResult(SampledTokens([], failed=True), [])


def _score_prompt(item: ScheduledSequence, rows: range, logits: torch.Tensor) -> PromptScores:
    """Log-probabilities of the prompt tokens that this chunk predicts."""
    num_top = item.sequence.params.prompt_logprobs
    assert num_top is not None
    first = item.num_computed_tokens + 1
    targets = item.sequence.token_ids[first : first + len(rows)]
    return PromptScores(logits[rows.start : rows.stop], targets, num_top)


_NO_ROWS = range(0)


@dataclass(frozen=True, slots=True)
class _LogitsWanted:
    """Which tokens of a step need logits, and which row of the logits serves whom."""

    token_indices: list[int]
    sampling_rows: list[int | None]
    scoring_rows: list[range]

    @classmethod
    def of(cls, scheduler_output: SchedulerOutput) -> _LogitsWanted:
        token_indices: list[int] = []
        sampling_rows: list[int | None] = []
        scoring_rows: list[range] = []
        start = 0
        for item in scheduler_output.scheduled:
            rows = _NO_ROWS
            if num_scored := _num_scored(item):
                rows = range(len(token_indices), len(token_indices) + num_scored)
                token_indices += range(start, start + num_scored)
            scoring_rows.append(rows)
            start += item.num_tokens
            if item.samples:
                sampling_rows.append(len(token_indices))
                token_indices.append(start - 1)
            else:
                sampling_rows.append(None)
        return cls(token_indices, sampling_rows, scoring_rows)


def _num_scored(item: ScheduledSequence) -> int:
    """Tokens of this chunk that predict another prompt token whose score is wanted."""
    sequence = item.sequence
    if sequence.params.prompt_logprobs is None:
        return 0
    return max(0, min(item.end, sequence.num_prompt_tokens - 1) - item.num_computed_tokens)
