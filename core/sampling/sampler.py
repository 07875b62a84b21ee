"""Sampler: one step's logits in, one step's tokens out. Owned by the core thread."""

from __future__ import annotations

import torch

from core.sampling.logprobs import log_softmax
from core.sampling.one_pass import RowDraw
from core.sampling.pending import PendingTokens
from core.sampling.plan import Plan, make_plan
from core.sampling.processor import LogitsProcessor, PreparedProcessor
from core.sampling.processors import default_processors
from core.sampling.result import SampledTokens
from core.sequence import Sequence

NUM_CANDIDATES = 128
"""Best tokens that a draw limited by min_p, top_k or top_p looks at first."""


class Sampler:
    """Chooses the next token of every sequence of a batch.

    In order: raw log-probabilities for those who asked; bias and masks; penalties; temperature;
    min_p; top_k; top_p; the draw. Nothing of it waits for the device; the result does, when it is
    collected.

    A row's token and log-probabilities depend on its logits and its sequence only. The last
    batch's sequences stay referenced until the next batch.
    """

    def __init__(
        self,
        eos_token_ids: tuple[int, ...] = (),
        *,
        processors: tuple[LogitsProcessor, ...] | None = None,
        num_candidates: int = NUM_CANDIDATES,
        draw: RowDraw | None = None,
    ) -> None:
        """``eos_token_ids`` are the model's own end tokens; ``processors`` replaces all edits.

        ``draw``, where there is one for the device, draws whole batches in one launch.
        """
        self._processors = default_processors(eos_token_ids) if processors is None else processors
        self._prepared = [p for p in self._processors if isinstance(p, PreparedProcessor)]
        self._num_candidates = num_candidates
        self._draw = draw
        self._plan: Plan | None = None

    def prepare(self, sequences: list[Sequence]) -> None:
        """Begin what can be done before the logits of ``sequences`` are there."""
        for processor in self._prepared:
            own = [sequence for sequence in sequences if processor.applies(sequence.params)]
            if own:
                processor.prepare(own)

    def __call__(self, logits: torch.Tensor, sequences: list[Sequence]) -> list[SampledTokens]:
        """One result per sequence; see ``launch``."""
        return self.launch(logits, sequences).collect() if sequences else []

    def launch(
        self,
        logits: torch.Tensor,
        sequences: list[Sequence],
        *,
        best: torch.Tensor | None = None,
    ) -> PendingTokens:
        """Choose on the device; row ``i`` of ``logits`` belongs to ``sequences[i]``.

        ``logits`` is [num_rows, vocab_size] of any float dtype and may be changed. Device and
        vocabulary must be the same in all calls. ``best`` is what ``best_tokens`` says of the
        logits, if that is known. The last token of each sequence may be in flight,
        if no processor that applies ``reads_tokens``. The result does not refer to ``logits``.
        """
        assert logits.shape[0] == len(sequences) > 0
        with torch.inference_mode():
            plan = self._plan_for(logits, sequences)
            raw = None if plan.reported is None else log_softmax(plan.reported.of(logits))
            if best is not None and plan.takes_best:
                tokens = best
            else:
                if plan.needs_float32 or logits.dtype == torch.float64:
                    logits = logits.to(torch.float32)
                for edit in plan.edits:
                    edit.processor.apply(logits, edit.rows, edit.sequences)
                tokens = _draw(logits, plan)
            return PendingTokens(tokens, raw, plan)

    def _plan_for(self, logits: torch.Tensor, sequences: list[Sequence]) -> Plan:
        if self._plan is None or self._plan.sequences != sequences:
            self._plan = make_plan(
                sequences,
                self._processors,
                num_candidates=self._num_candidates,
                vocab_size=logits.shape[1],
                device=logits.device,
                draw=self._draw,
            )
        return self._plan


def _draw(logits: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Tokens of the whole batch, int64 [num_rows]."""
    if len(plan.groups) == 1:
        return plan.groups[0].draw(logits)
    tokens = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
    for group in plan.groups:
        group.rows.put(tokens, group.draw(logits))
    return tokens
