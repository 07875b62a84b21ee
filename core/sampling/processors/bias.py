"""Bias: adds numbers to the logits of listed tokens."""

from __future__ import annotations

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.kernels.cpu import edits
from core.kernels.cpu.library import kernels
from core.sampling.processors.entries import Float64Array, entries
from core.sampling.processors.per_request import PerRequest
from core.state.sequence import Sequence


class Bias:
    """``logit_bias``. Costs one pass over the listed tokens, on a CPU in a kernel."""

    reads_tokens = False

    def __init__(self) -> None:
        self._columns: PerRequest[tuple[Float64Array, Float64Array]] = PerRequest(_columns)

    def applies(self, params: SamplingParams) -> bool:
        return bool(params.logit_bias)

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        biases = self._columns.of(sequence.params.logit_bias for sequence in sequences)
        library = kernels() if logits.device.type == "cpu" else None
        if library is not None:
            own = zip(rows, biases, strict=True)
            edits.bias(library, logits, [_entries(row, ids, values) for row, (ids, values) in own])
            return
        index, ids, columns = entries(
            logits, rows, [ids for ids, _ in biases], [values for _, values in biases]
        )
        logits[index, ids] += columns[0]


def _columns(bias: dict[int, float]) -> tuple[Float64Array, Float64Array]:
    return np.array(list(bias), dtype=np.float64), np.array(list(bias.values()), dtype=np.float64)


def _entries(row: int, ids: Float64Array, values: Float64Array) -> edits.Entries:
    return row, len(ids), ids.ctypes.data, values.ctypes.data
