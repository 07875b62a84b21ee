"""SamplingBatch: what each row of a batch needs. Made when the batch changes and then reused."""

from __future__ import annotations

import dataclasses

import torch

from core.sampling.draw import RowDraw
from core.sampling.logprobs import log_softmax
from core.sampling.processors.protocol import LogitsProcessor
from core.sampling.rows import (
    FilteredRows,
    FusedRows,
    GreedyRows,
    RowGroup,
    Rows,
    UnfilteredRows,
    filters_tokens,
    takes_best,
)
from core.sequence import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """A logits processor and the rows that it applies to."""

    processor: LogitsProcessor
    rows: list[int]
    sequences: list[Sequence]


@dataclasses.dataclass(frozen=True, slots=True)
class SamplingBatch:
    """The sequences of a batch, sorted by what their parameters ask for.

    Every row is in one of ``groups``. ``reported`` are the rows that want log-probabilities and
    ``num_top`` is the largest number of alternatives among them.
    """

    sequences: list[Sequence]
    edits: list[Edit]
    groups: list[RowGroup]
    reported: Rows | None
    num_top: int

    @classmethod
    def of(
        cls,
        sequences: list[Sequence],
        processors: tuple[LogitsProcessor, ...],
        *,
        num_candidates: int,
        vocab_size: int,
        device: torch.device,
        draw: RowDraw | None = None,
    ) -> SamplingBatch:
        """Sort the rows and upload their parameters.

        With ``draw`` all rows of a batch with random rows are drawn in one kernel.
        """
        reported = [i for i, s in enumerate(sequences) if s.params.logprobs is not None]
        if draw is not None and not all(takes_best(s.params) for s in sequences):
            groups: list[RowGroup] = [
                FusedRows(Rows(sequences, None), draw, vocab_size=vocab_size, device=device)
            ]
        else:
            groups = _groups(
                sequences, num_candidates=num_candidates, vocab_size=vocab_size, device=device
            )
        return cls(
            sequences=list(sequences),
            edits=[edit for edit in (_edit(p, sequences) for p in processors) if edit.rows],
            groups=groups,
            reported=Rows.select(reported, sequences, device) if reported else None,
            num_top=max((sequences[row].params.logprobs or 0 for row in reported), default=0),
        )

    @property
    def is_greedy(self) -> bool:
        """Whether every row gets the best token of the unedited logits."""
        return not self.edits and all(isinstance(group, GreedyRows) for group in self.groups)

    @property
    def reads_tokens(self) -> bool:
        """Whether the next step's edits depend on the tokens of this one."""
        return any(edit.processor.reads_tokens for edit in self.edits)

    def raw_logprobs(self, logits: torch.Tensor) -> torch.Tensor | None:
        """Return the log-probabilities of the reported rows, before any edit."""
        return None if self.reported is None else log_softmax(self.reported.of(logits))

    def edit(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply the logits processors; in float32 where 16 bits would change the result.

        Greedy rows need no float32 of 16 bits, and float64 would tell values apart that are equal
        for other rows.
        """
        draws = any(isinstance(group, UnfilteredRows | FilteredRows) for group in self.groups)
        if self.edits or draws or logits.dtype == torch.float64:
            logits = logits.to(torch.float32)
        for edit in self.edits:
            edit.processor.apply(logits, edit.rows, edit.sequences)
        return logits

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the tokens of all rows, int64 [num_rows], FAILED where there is none."""
        if len(self.groups) == 1:
            return self.groups[0].draw(logits)
        tokens = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
        for group in self.groups:
            group.rows.put(tokens, group.draw(logits))
        return tokens


def _groups(
    sequences: list[Sequence], *, num_candidates: int, vocab_size: int, device: torch.device
) -> list[RowGroup]:
    greedy: list[int] = []
    unfiltered: list[int] = []
    filtered: list[int] = []
    for row, sequence in enumerate(sequences):
        if takes_best(sequence.params):
            greedy.append(row)
        elif filters_tokens(sequence.params, vocab_size):
            filtered.append(row)
        else:
            unfiltered.append(row)
    groups: list[RowGroup] = []
    if greedy:
        groups.append(GreedyRows(Rows.select(greedy, sequences, device)))
    if unfiltered:
        groups.append(UnfilteredRows(Rows.select(unfiltered, sequences, device), device))
    if filtered:
        rows = Rows.select(filtered, sequences, device)
        groups.append(FilteredRows(rows, num_candidates, vocab_size, device))
    return groups


def _edit(processor: LogitsProcessor, sequences: list[Sequence]) -> Edit:
    rows = [row for row, sequence in enumerate(sequences) if processor.applies(sequence.params)]
    return Edit(processor, rows, [sequences[row] for row in rows])
