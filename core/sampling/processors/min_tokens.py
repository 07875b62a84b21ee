"""MinTokens: masks end tokens until the output is long enough."""

from __future__ import annotations

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.sampling.processors.entries import entries, exclude
from core.state.sequence import Sequence


class MinTokens:
    """``min_tokens``. Masks the tokens that would end the request.

    These are its own ``stop_token_ids`` and, without ``ignore_eos``, the model's end tokens.
    """

    reads_tokens = False

    def __init__(self, eos_token_ids: tuple[int, ...]) -> None:
        self._eos_token_ids = eos_token_ids

    def applies(self, params: SamplingParams) -> bool:
        return params.min_tokens > 0

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        """Mask the end tokens of sequences that are too short."""
        short = [
            (row, sequence.params)
            for row, sequence in zip(rows, sequences, strict=True)
            if sequence.num_sampled_tokens < sequence.params.min_tokens
        ]
        if short:
            ids = [np.array(self._end_tokens(params), dtype=np.float64) for _, params in short]
            index, ends, _ = entries(logits, [row for row, _ in short], ids)
            exclude(logits, index, ends)

    def _end_tokens(self, params: SamplingParams) -> tuple[int, ...]:
        if params.ignore_eos:
            return params.stop_token_ids
        return params.stop_token_ids + self._eos_token_ids
