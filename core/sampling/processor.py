"""LogitsProcessor: the seam for whatever edits logits before a token is chosen."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch

from core.contract.params import SamplingParams
from core.sequence import Sequence


class LogitsProcessor(Protocol):
    """Edits the logits of those rows of a batch whose parameters ask for it. Core thread only.

    ``reads_tokens`` says whether what it does depends on which tokens were sampled before, and not
    only on their number: then they must be known on the host before the next step is launched.
    """

    @property
    def reads_tokens(self) -> bool:
        """See above."""
        ...

    def applies(self, params: SamplingParams) -> bool:
        """Whether a request with these parameters can ever need this; asked once per batch."""
        ...

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        """Change rows ``rows`` of ``logits`` in place; ``sequences[i]`` is that of ``rows[i]``.

        ``logits`` is float32 [num_rows, vocab_size] of the whole batch. Called only with at least
        one row. What is written to a row may depend on that row and its sequence only.
        """
        ...


@runtime_checkable
class PreparedProcessor(LogitsProcessor, Protocol):
    """One whose work depends on nothing but the tokens so far, and can begin before the logits."""

    def prepare(self, sequences: list[Sequence]) -> None:
        """Begin the work of the coming ``apply``, which gets the same sequences. Never waits.

        Called before the forward pass, with at least one sequence. ``apply`` is not called after
        it if the step fails.
        """
        ...
