"""LogitsProcessor: edits logits before a token is chosen."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch

from core.contract.params import SamplingParams
from core.state.sequence import Sequence


class LogitsProcessor(Protocol):
    """Edits the logits of the rows whose parameters ask for it. Core thread only.

    ``reads_tokens`` says whether the edit depends on which tokens were sampled before, not only on
    their number. Then the host must know them before the next step is launched.
    """

    @property
    def reads_tokens(self) -> bool: ...

    def applies(self, params: SamplingParams) -> bool:
        """Whether a request with these parameters may need this processor in any step."""
        ...

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        """Change rows ``rows`` of ``logits`` in place; ``sequences[i]`` is that of ``rows[i]``.

        ``logits`` is float32 [num_rows, vocab_size] of the whole batch. There is at least one
        row. The edit of a row may depend only on that row and its sequence.
        """
        ...


@runtime_checkable
class PreparedProcessor(LogitsProcessor, Protocol):
    """A processor whose work depends only on the tokens so far and can start before the logits."""

    def prepare(self, sequences: list[Sequence]) -> None:
        """Start the work of the next ``apply``, which gets the same sequences. Does not wait.

        Called before the forward pass, with at least one sequence. ``apply`` does not follow if
        the step fails.
        """
        ...
