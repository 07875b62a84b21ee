"""AllowedTokens: masks all tokens that are not listed."""

from __future__ import annotations

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.sampling.processors.per_request import PerRequest
from core.state.sequence import Sequence
from core.system.pinned import upload


class AllowedTokens:
    """``allowed_token_ids``: all other logits become -inf.

    The mask is made once per request and shared by its choices. A step costs one pass over each
    row, however long the list is.
    """

    reads_tokens = False

    def __init__(self) -> None:
        self._ids: PerRequest[_Allowed] = PerRequest(_Allowed)

    def applies(self, params: SamplingParams) -> bool:
        return params.allowed_token_ids is not None

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        """Mask the rows in place."""
        allowed = self._ids.of(sequence.params.allowed_token_ids for sequence in sequences)
        for row, ids in zip(rows, allowed, strict=True):
            logits[row].masked_fill_(ids.excluded(logits), -torch.inf)


class _Allowed:
    """A list of token ids, and its mask once the vocabulary is known."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self._ids = np.array(ids, dtype=np.int64)
        self._excluded: torch.Tensor | None = None

    def excluded(self, logits: torch.Tensor) -> torch.Tensor:
        """Return bool [vocab_size] on the device of ``logits``: True where a token is not listed.

        Ids outside the vocabulary are left out.
        """
        if self._excluded is None:
            vocab_size = logits.shape[1]
            mask = np.ones(vocab_size)
            mask[self._ids[(self._ids >= 0) & (self._ids < vocab_size)]] = 0
            self._excluded = upload(mask, logits.device).bool()
        return self._excluded
