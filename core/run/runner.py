"""ModelRunner: computes a scheduled step in two phases, launch and collect.

Launch makes the step's ``ModelInput``, computes logits by the forward pass and gives the rows that
sample to the sampler. Collect waits for the tokens: one result for each sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Ids
from itertools import accumulate

import torch

from core.batch.logits import Logits, LogitsRows
from core.batch.model_input import ModelInputs
from core.contract.errors import GenerationFailed
from core.kv.storage import KVStorage
from core.observe.step_timer import StepTimer
from core.run.forward import ForwardPass, LastTokens
from core.sampling.logprobs import PromptScores
from core.sampling.result import PendingTokens, RowFailure, SampledTokens, SequenceResult
from core.sampling.sampler import Sampler
from core.scheduler import ScheduledSequence, SchedulerOutput
from core.state.sequence import Sequence


class ModelRunner:
    """Runs one forward pass per step and samples. Core thread only.

    ``storages`` are those of the layer groups. Blocks are numbered as in the KVCacheManager.
    ``last_tokens`` keeps the sampled tokens on the device, so that the next step can be launched
    before this one is collected. Without it, collect every step before the next launch.
    """

    def __init__(
        self,
        forward: ForwardPass,
        sampler: Sampler,
        storages: Ids[KVStorage],
        last_tokens: LastTokens | None = None,
    ) -> None:
        self._forward = forward
        self._sampler = sampler
        self._storages = storages
        self._last_tokens = last_tokens
        self._inputs = ModelInputs(storages[0].block_size)
        self.timer = StepTimer()

    def begin_layers(self) -> None:
        """Hand over the outputs of the step before: this one computes from now on."""
        self.timer.lap("forward")
        self.timer.hand_over.release()
        self.timer.lap("delivery")

    @property
    def first_blocks(self) -> list[int]:
        """The number of the first block of each group."""
        counts = [storage.num_blocks for storage in self._storages]
        return list(accumulate(counts[:-1], initial=0))

    def clear(self, block_ids: Ids[int]) -> None:
        """Zero free blocks that may contain NaN: NaN would spread through attention masks."""
        for _, storage, ids in self._by_group(block_ids):
            storage.clear(ids)

    def not_finite(self, block_ids: Ids[int]) -> list[int]:
        """Return the blocks among these that contain NaN or infinity. Waits for the device."""
        return [
            base + block_id
            for base, storage, ids in self._by_group(block_ids)
            for block_id in storage.not_finite(ids)
        ]

    def _by_group(self, numbers: Ids[int]) -> Iterator[tuple[int, KVStorage, list[int]]]:
        """First number, storage and block ids of each group that has some of these blocks."""
        for base, storage in zip(self.first_blocks, self._storages, strict=True):
            end = base + storage.num_blocks
            if ids := [number - base for number in numbers if base <= number < end]:
                yield base, storage, ids

    def launch(self, scheduler_output: SchedulerOutput) -> StepInFlight:
        """Launch the step on the device without waiting for it."""
        scheduled = scheduler_output.scheduled
        sampling = [item.sequence for item in scheduled if item.samples]
        wants_best = self._sampler.prepare(sampling)
        self.timer.lap("masks")
        with torch.inference_mode():
            rows = LogitsRows.of(scheduler_output)
            last = self._last_tokens
            batch = self._inputs.of(
                [(item.sequence, item.num_tokens) for item in scheduled],
                rows.token_indices,
                wants_best=wants_best and len(sampling) == len(rows.token_indices),
                rows_in_flight=None if last is None else last.rows,
            )
            self.timer.lap("inputs")
            logits = self._forward(batch)
            self.timer.lap("forward")
            scores: list[PromptScores | None] = [None] * len(scheduled)
            if any(rows.scoring):
                scores = [
                    _score_prompt(item, scored, logits.values) if scored else None
                    for item, scored in zip(scheduled, rows.scoring, strict=True)
                ]
            tokens = self._sample(logits, rows, sampling) if sampling else None
            if last is not None and tokens is not None:
                last.keep(sampling, tokens.tokens)
            self.timer.lap("sampling")
            return StepInFlight(tokens, rows.sampling, scores)

    def _sample(self, logits: Logits, rows: LogitsRows, sequences: list[Sequence]) -> PendingTokens:
        values, best = logits.values, logits.best
        if len(sequences) < values.shape[0]:
            values, best = values[rows.sampling_index(values.device)], None
        return self._sampler.launch(values, sequences, greedy_tokens=best)


class StepInFlight:
    """A launched step. Core thread only."""

    def __init__(
        self,
        tokens: PendingTokens | None,
        sampling_rows: list[int | None],
        scores: list[PromptScores | None],
    ) -> None:
        """``sampling_rows`` and ``scores`` have one entry per sequence of the step."""
        self._tokens = tokens
        self._sampling_rows = sampling_rows
        self._scores = scores

    @property
    def must_land(self) -> bool:
        """Whether the host must know its tokens before the next step is launched."""
        return self._tokens is not None and self._tokens.must_land

    def collect(self) -> list[SequenceResult]:
        """Wait for the step; return one result per sequence of it."""
        sampled = iter(() if self._tokens is None else self._tokens.collect())
        return [
            _result(None if row is None else next(sampled), scores)
            for row, scores in zip(self._sampling_rows, self._scores, strict=True)
        ]


def _result(sampled: SampledTokens | None, scores: PromptScores | None) -> SequenceResult:
    """Join token and prompt log-probabilities. If these fail, the sequence fails."""
    if scores is None:
        return SequenceResult(sampled)
    try:
        return SequenceResult(sampled, scores.collect())
    except GenerationFailed:
        return SequenceResult(SampledTokens([], failure=RowFailure.NAN))


def _score_prompt(item: ScheduledSequence, rows: range, logits: torch.Tensor) -> PromptScores:
    """Log-probabilities of the prompt tokens that this chunk predicts."""
    num_top = item.sequence.params.prompt_logprobs
    assert num_top is not None
    first = item.num_computed_tokens + 1
    targets = item.sequence.token_ids[first : first + len(rows)]
    return PromptScores(logits[rows.start : rows.stop], targets, num_top)
