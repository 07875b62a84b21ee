"""Sampler: from one step's logits to one step's tokens.

The runner gives it the logits of all sequences that sample. Logits processors edit them, and each
row draws by its own sequence's parameters, seed and position.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.contract.params import SamplingParams
from core.sampling.batch import SamplingBatch
from core.sampling.draw import RowDraw, takes_best
from core.sampling.processors import default_processors
from core.sampling.processors.protocol import LogitsProcessor, PreparedProcessor
from core.sampling.result import PendingTokens, SampledTokens, Tokens
from core.sampling.torch_draw import draw_rows
from core.state.sequence import Sequence


@dataclass(frozen=True, slots=True)
class _Plan:
    """The facts about some sequences that need no logits."""

    sequences: list[Sequence]
    prepared: list[tuple[PreparedProcessor, list[Sequence]]]
    wants_best: bool

    @classmethod
    def of(cls, sequences: list[Sequence], processors: tuple[LogitsProcessor, ...]) -> _Plan:
        edits = [
            (processor, own)
            for processor in processors
            if (own := [each for each in sequences if processor.applies(each.params)])
        ]
        return cls(
            sequences=list(sequences),
            prepared=[(p, own) for p, own in edits if isinstance(p, PreparedProcessor)],
            wants_best=not edits and all(_wants_best(each.params) for each in sequences),
        )


class Sampler:
    """Chooses the next token of every sequence of a batch. Core thread only.

    The order is: raw log-probabilities, logits processors, temperature, min_p, top_k, top_p, draw.
    On CUDA nothing waits for the device until the result is collected.

    The token and log-probabilities of a row depend only on its logits and its sequence. The
    sequences of the last batch stay referenced until the next batch.
    """

    def __init__(
        self,
        eos_token_ids: tuple[int, ...] = (),
        *,
        processors: tuple[LogitsProcessor, ...] | None = None,
        draw: RowDraw = draw_rows,
    ) -> None:
        """``eos_token_ids`` are the model's; ``processors`` replaces the default ones.

        ``draw`` draws batches with random rows. On CUDA a kernel is required: torch's operations
        would wait for the device.
        """
        self._processors = default_processors(eos_token_ids) if processors is None else processors
        self._draw = draw
        self._plan = _Plan.of([], ())
        self._batch: SamplingBatch | None = None

    def prepare(self, sequences: list[Sequence]) -> bool:
        """Start the work of logits processors that does not need the logits.

        Returns whether every sequence gets the best token of its unedited logits, and nothing
        else is read from them: then ``greedy_tokens`` are enough.
        """
        if self._plan.sequences != sequences:
            self._plan = _Plan.of(sequences, self._processors)
        for processor, own in self._plan.prepared:
            processor.prepare(own)
        return self._plan.wants_best

    def __call__(self, logits: torch.Tensor, sequences: list[Sequence]) -> list[SampledTokens]:
        """Launch and collect."""
        return self.launch(logits, sequences).collect() if sequences else []

    def launch(
        self,
        logits: torch.Tensor,
        sequences: list[Sequence],
        *,
        greedy_tokens: Tokens | None = None,
    ) -> PendingTokens:
        """Choose on the device; row ``i`` of ``logits`` belongs to ``sequences[i]``.

        ``logits`` is [num_rows, vocab_size] of any float dtype and may be changed; the result does
        not refer to it. Device and vocabulary size must be the same in all calls.
        ``greedy_tokens`` is what ``greedy.greedy_tokens`` returns for ``logits``, if it is known.
        Where they are enough (see ``prepare``), the values of ``logits`` are not read.
        The last token of a sequence may be in flight unless a processor that applies to the
        sequence ``reads_tokens``.
        """
        assert logits.shape[0] == len(sequences) > 0
        batch = self._batch_of(logits, sequences)
        if greedy_tokens is not None and batch.is_greedy and batch.reported is None:
            return PendingTokens(greedy_tokens, None, batch)
        with torch.inference_mode():
            raw = batch.raw(logits)
            tokens: Tokens
            if greedy_tokens is not None and batch.is_greedy:
                tokens = greedy_tokens
            else:
                tokens = batch.draw(batch.edit(logits))
            return PendingTokens(tokens, raw, batch)

    def _batch_of(self, logits: torch.Tensor, sequences: list[Sequence]) -> SamplingBatch:
        if self._batch is None or self._batch.sequences != sequences:
            self._batch = SamplingBatch.of(
                sequences,
                self._processors,
                self._draw,
                vocab_size=logits.shape[1],
                device=logits.device,
            )
        return self._batch


def _wants_best(params: SamplingParams) -> bool:
    """Whether the best token is all that a row wants of its unedited logits."""
    return takes_best(params) and params.logprobs is None
