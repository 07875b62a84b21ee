"""Bias: adds numbers to the logits of listed tokens."""

from __future__ import annotations

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.sampling.processors.entries import entries
from core.sequence import Sequence


class Bias:
    """``logit_bias``. Costs one small transfer and one gather and scatter of the listed tokens."""

    reads_tokens = False

    def applies(self, params: SamplingParams) -> bool:
        return bool(params.logit_bias)

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        biases = [sequence.params.logit_bias for sequence in sequences]
        index, ids, columns = entries(
            logits,
            rows,
            [np.array(list(bias), dtype=np.float64) for bias in biases],
            [np.array(list(bias.values()), dtype=np.float64) for bias in biases],
        )
        logits[index, ids] += columns[0]
