"""Plan: which rows of a batch need what. Made when the batch changes and used until then."""

from __future__ import annotations

import dataclasses

import torch

from core.sampling.groups import Best, Free, Group, Ranked, is_limited, takes_best
from core.sampling.one_pass import OnePass, RowDraw
from core.sampling.processor import LogitsProcessor
from core.sampling.rows import Rows
from core.sequence import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """A processor and the rows of the batch that it works on."""

    processor: LogitsProcessor
    rows: list[int]
    sequences: list[Sequence]


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """All that is known of a step before its logits. What no row needs is not in it."""

    sequences: list[Sequence]
    edits: list[Edit]
    groups: list[Group]
    reported: Rows | None  # those that want log-probabilities
    num_top: int  # most alternatives that one of them wants

    @property
    def needs_float32(self) -> bool:
        """Whether 16 bits are not good enough: for taking the best they are."""
        return bool(self.edits) or any(isinstance(group, Free | Ranked) for group in self.groups)

    @property
    def takes_best(self) -> bool:
        """Whether every row gets the best token of the logits as they are."""
        return not self.edits and all(isinstance(group, Best) for group in self.groups)

    @property
    def reads_tokens(self) -> bool:
        """Whether the next step's edits depend on the tokens of this one."""
        return any(edit.processor.reads_tokens for edit in self.edits)


def make_plan(
    sequences: list[Sequence],
    processors: tuple[LogitsProcessor, ...],
    *,
    num_candidates: int,
    vocab_size: int,
    device: torch.device,
    draw: RowDraw | None = None,
) -> Plan:
    """The plan of a batch. A few tests per row, and an upload of the rows' parameters.

    ``draw`` draws all rows of a batch with random ones.
    """
    best: list[int] = []
    free: list[int] = []
    ranked: list[int] = []
    reported: list[int] = []
    num_top = 0
    for row, sequence in enumerate(sequences):
        params = sequence.params
        if takes_best(params):
            best.append(row)
        elif is_limited(params, vocab_size):
            ranked.append(row)
        else:
            free.append(row)
        if params.logprobs is not None:
            reported.append(row)
            num_top = max(num_top, params.logprobs)

    groups: list[Group] = []
    if draw is not None and len(best) < len(sequences):
        groups.append(OnePass(Rows(sequences, None), draw, vocab_size, device))
    else:
        if best:
            groups.append(Best(Rows.select(best, sequences, device)))
        if free:
            groups.append(Free(Rows.select(free, sequences, device), device))
        if ranked:
            rows = Rows.select(ranked, sequences, device)
            groups.append(Ranked(rows, num_candidates, vocab_size, device))
    return Plan(
        sequences=list(sequences),
        edits=[edit for edit in (_edit(p, sequences) for p in processors) if edit.rows],
        groups=groups,
        reported=Rows.select(reported, sequences, device) if reported else None,
        num_top=num_top,
    )


def _edit(processor: LogitsProcessor, sequences: list[Sequence]) -> Edit:
    rows = [row for row, sequence in enumerate(sequences) if processor.applies(sequence.params)]
    return Edit(processor, rows, [sequences[row] for row in rows])
