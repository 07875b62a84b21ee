"""LastTokens: the tokens of the last step, on the device, where the next step begins with them."""

from __future__ import annotations

import torch

from core.sequence import Sequence


class LastTokens:
    """What was sampled in the step before, before the host knows. Core thread only.

    ``rows`` says where a sequence's token is. In the token ids of a step ``-1 - row`` stands for
    the token of a row. The buffer never moves, so that a CUDA graph can read it.
    """

    def __init__(self, max_num_seqs: int, device: torch.device) -> None:
        self.rows: dict[Sequence, int] = {}
        self._tokens = torch.zeros(max_num_seqs, dtype=torch.int64, device=device)

    def keep(self, sequences: list[Sequence], tokens: torch.Tensor) -> None:
        """Take the place of what was kept before; ``tokens[i]`` is of ``sequences[i]``.

        A row without a token, which is below 0, becomes token 0: something has to be computed.
        """
        self.rows = {sequence: row for row, sequence in enumerate(sequences)}
        torch.clamp(tokens, min=0, out=self._tokens[: len(tokens)])

    def resolve(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Put tokens in place of their rows, in a copy of ``token_ids`` on the device."""
        rows = torch.bitwise_not(token_ids).clamp_(min=0)  # -1 - id
        return torch.where(token_ids < 0, self._tokens.index_select(0, rows), token_ids)
