"""AllowedTokens: only listed tokens may be chosen."""

from __future__ import annotations

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.sampling.upload import entries, upload
from core.sequence import Sequence


class AllowedTokens:
    """``allowed_token_ids``. The logits of the listed tokens are kept, all others become -inf."""

    reads_tokens = False

    def applies(self, params: SamplingParams) -> bool:
        """Whether the choice is limited."""
        return params.allowed_token_ids is not None

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        """Set aside what is allowed, mask the row, put it back."""
        ids = [
            np.array(sequence.params.allowed_token_ids, dtype=np.float64) for sequence in sequences
        ]
        index, allowed, _ = entries(logits, rows, ids)
        kept = logits[index, allowed]
        masked = upload(np.array(rows, dtype=np.float64), logits.device).long()
        logits.index_fill_(0, masked, -torch.inf)
        logits[index, allowed] = kept
