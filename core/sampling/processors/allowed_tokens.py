"""AllowedTokens: masks all tokens that are not listed."""

from __future__ import annotations

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.pinned import upload
from core.sampling.processors.entries import entries
from core.sequence import Sequence


class AllowedTokens:
    """``allowed_token_ids``: all other logits become -inf."""

    reads_tokens = False

    def applies(self, params: SamplingParams) -> bool:
        return params.allowed_token_ids is not None

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        """Save the allowed logits, mask the rows, restore the allowed logits."""
        ids = [
            np.array(sequence.params.allowed_token_ids, dtype=np.float64) for sequence in sequences
        ]
        index, allowed, _ = entries(logits, rows, ids)
        kept = logits[index, allowed]
        masked = upload(np.array(rows, dtype=np.float64), logits.device).long()
        logits.index_fill_(0, masked, -torch.inf)
        logits[index, allowed] = kept
