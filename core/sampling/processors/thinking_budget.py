"""ThinkingBudget: forces the marker that ends the thinking."""

from __future__ import annotations

import torch

from core.contract.params import SamplingParams
from core.state.sequence import Sequence


class ThinkingBudget:
    """``thinking.budget``. After that many tokens of thinking only the end marker may follow.

    ``Sequence.must_end_thinking`` says when. A marker token that an earlier processor masked is
    not forced.
    """

    reads_tokens = True

    def applies(self, params: SamplingParams) -> bool:
        return params.thinking is not None and params.thinking.budget is not None

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        """Mask all but the marker's next token in the rows that used up their budget."""
        for row, sequence in zip(rows, sequences, strict=True):
            token_id = _next_of_marker(sequence) if sequence.must_end_thinking else None
            if token_id is not None and token_id < logits.shape[1]:
                value = logits[row, token_id].clone()
                masked = torch.full_like(logits[row], -torch.inf)
                masked[token_id] = value
                torch.where(value > -torch.inf, masked, logits[row], out=logits[row])


def _next_of_marker(sequence: Sequence) -> int | None:
    """Return the token after the part of the end marker that the output ends with."""
    assert sequence.params.thinking is not None
    marker = sequence.params.thinking.end_token_ids
    token_ids = sequence.token_ids
    for size in range(min(len(marker) - 1, sequence.num_output_tokens), 0, -1):
        if tuple(token_ids[-size:]) == marker[:size]:
            return marker[size]
    return marker[0] if marker else None
