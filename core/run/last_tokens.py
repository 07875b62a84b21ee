"""LastTokens: the tokens sampled by the last step, kept on the device for the next step."""

from __future__ import annotations

import torch

from core.sampling.result import Tokens
from core.state.sequence import Sequence


class LastTokens:
    """The tokens of the last launched step, one row per sequence. Core thread only.

    ``rows`` is the row of each sequence. In the token ids of a step, ``-1 - row`` refers to the
    token of that row. The buffer never moves, so that a CUDA graph can read it.
    """

    def __init__(self, max_num_seqs: int, device: torch.device) -> None:
        self.rows: dict[Sequence, int] = {}
        self._tokens = torch.zeros(max_num_seqs, dtype=torch.int64, device=device)

    def keep(self, sequences: list[Sequence], tokens: Tokens) -> None:
        """Replace the tokens; ``tokens[i]`` belongs to ``sequences[i]``.

        A row without a token (below 0: FAILED or MASKED) gets token 0, so that the next step
        has a valid input.
        """
        self.rows = {sequence: row for row, sequence in enumerate(sequences)}
        torch.clamp(torch.as_tensor(tokens), min=0, out=self._tokens[: len(tokens)])

    def resolve(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Return ``token_ids``, on the device, with references replaced by their tokens."""
        rows = torch.bitwise_not(token_ids).clamp_(min=0)  # -1 - id
        return torch.where(token_ids < 0, self._tokens.index_select(0, rows), token_ids)
