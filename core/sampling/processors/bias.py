"""Bias: adds numbers to the logits of listed tokens."""

from __future__ import annotations

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.sampling.processors.entries import Float64Array, entries
from core.sampling.processors.per_request import PerRequest
from core.sequence import Sequence


class Bias:
    """``logit_bias``. Costs one small transfer and one gather and scatter of the listed tokens."""

    reads_tokens = False

    def __init__(self) -> None:
        self._columns: PerRequest[tuple[Float64Array, Float64Array]] = PerRequest(_columns)

    def applies(self, params: SamplingParams) -> bool:
        return bool(params.logit_bias)

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        biases = self._columns.of(sequence.params.logit_bias for sequence in sequences)
        index, ids, columns = entries(
            logits, rows, [ids for ids, _ in biases], [values for _, values in biases]
        )
        logits[index, ids] += columns[0]


def _columns(bias: dict[int, float]) -> tuple[Float64Array, Float64Array]:
    return np.array(list(bias), dtype=np.float64), np.array(list(bias.values()), dtype=np.float64)
