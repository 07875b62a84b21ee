"""SamplingBatch: what each row of a batch needs. Made when the batch changes and then reused."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from core.sampling.draw import RandomRows, RowDraw, takes_best
from core.sampling.greedy import greedy_tokens
from core.sampling.processors.protocol import LogitsProcessor
from core.state.sequence import Sequence
from core.system.pinned import upload


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """A logits processor and the rows that it applies to."""

    processor: LogitsProcessor
    rows: list[int]
    sequences: list[Sequence]


@dataclasses.dataclass(frozen=True, slots=True)
class ReportedRows:
    """The rows that want log-probabilities. ``index`` is int64 [num_rows], None for all rows.

    ``num_top`` is the largest number of alternatives among them.
    """

    num_rows: int
    index: torch.Tensor | None
    num_top: int

    @classmethod
    def of_batch(cls, sequences: list[Sequence], device: torch.device) -> ReportedRows | None:
        """None if there are no such rows."""
        wanted = [(row, s.params.logprobs) for row, s in enumerate(sequences)]
        tops = {row: num_top for row, num_top in wanted if num_top is not None}
        if not tops:
            return None
        index = None
        if len(tops) < len(sequences):
            index = upload(np.array(list(tops), dtype=np.float64), device).long()
        return cls(len(tops), index, max(tops.values()))

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return these rows of ``tensor``: a copy, or ``tensor`` itself for all rows."""
        return tensor if self.index is None else tensor.index_select(0, self.index)


@dataclasses.dataclass(frozen=True, slots=True)
class SamplingBatch:
    """The sequences of a batch, and what their parameters ask for.

    ``random`` is None if every row takes its best token.
    """

    sequences: list[Sequence]
    edits: list[Edit]
    random: RandomRows | None
    reported: ReportedRows | None

    @classmethod
    def of(
        cls,
        sequences: list[Sequence],
        processors: tuple[LogitsProcessor, ...],
        draw: RowDraw,
        *,
        vocab_size: int,
        device: torch.device,
    ) -> SamplingBatch:
        """Upload the parameters of the rows."""
        random = None
        if not all(takes_best(sequence.params) for sequence in sequences):
            random = RandomRows(sequences, draw, vocab_size=vocab_size, device=device)
        return cls(
            sequences=list(sequences),
            edits=[edit for edit in (_edit(p, sequences) for p in processors) if edit.rows],
            random=random,
            reported=ReportedRows.of_batch(sequences, device),
        )

    @property
    def is_greedy(self) -> bool:
        """Whether every row gets the best token of the unedited logits."""
        return not self.edits and self.random is None

    @property
    def reads_tokens(self) -> bool:
        """Whether the next step's edits depend on the tokens of this one."""
        return any(edit.processor.reads_tokens for edit in self.edits)

    def raw(self, logits: torch.Tensor) -> torch.Tensor | None:
        """Return the logits of the reported rows, which ``edit`` does not change then."""
        if self.reported is None:
            return None
        own = self.reported.of(logits)
        return own.clone() if own is logits and self.edits else own

    def edit(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply the logits processors, in float32.

        Greedy rows need no float32 of 16 bits, and float64 would tell values apart that are equal
        for other rows.
        """
        if self.edits or logits.dtype == torch.float64:
            logits = logits.to(torch.float32)
        for edit in self.edits:
            edit.processor.apply(logits, edit.rows, edit.sequences)
        return logits

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the tokens of all rows, int64 [num_rows], FAILED or MASKED where there is none."""
        return greedy_tokens(logits) if self.random is None else self.random.draw(logits)


def _edit(processor: LogitsProcessor, sequences: list[Sequence]) -> Edit:
    rows = [row for row, sequence in enumerate(sequences) if processor.applies(sequence.params)]
    return Edit(processor, rows, [sequences[row] for row in rows])
