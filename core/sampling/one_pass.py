"""OnePass: greedy and random rows together, where one kernel draws them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.sampling.groups import MAX_TEMPERATURE, takes_best
from core.sampling.rows import Rows
from core.sampling.stream import Stream
from core.sampling.upload import upload

RowDraw: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""One token of each row, from logits, filters and random bits: core.kernels.triton.draw."""

_MIN_TEMPERATURE = 1e-30
"""The draw takes the best long before; less would be 0 in float32, which says so by itself."""


def row_draw(vocab_size: int, dtype: torch.dtype, device: torch.device) -> RowDraw | None:
    """What draws whole batches on the device, compiled for logits of ``dtype``; None: nothing."""
    if device.type != "cuda":
        return None
    try:
        from core.kernels.triton.draw import draw_rows  # noqa: PLC0415 - needs Triton
    except ModuleNotFoundError:
        return None
    filters = torch.ones(4, 1, dtype=torch.float64, device=device)
    bits = torch.zeros(1, dtype=torch.int64, device=device)
    for kind in {dtype, torch.float32}:  # edited logits are float32
        draw_rows(torch.zeros(1, vocab_size, dtype=kind, device=device), filters, bits)
    return draw_rows


class OnePass:
    """Draws all rows of a batch. See core.sampling.groups.Group."""

    def __init__(self, rows: Rows, draw: RowDraw, vocab_size: int, device: torch.device) -> None:
        self.rows = rows
        self._draw = draw
        self._stream = Stream(rows.sequences)
        filters = [_filters(sequence.params, vocab_size) for sequence in rows.sequences]
        self._filters = upload(np.array(filters, dtype=np.float64).T.copy(), device)

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """One launch."""
        return self._draw(self.rows.of(logits), self._filters, self._stream.bits(logits.device))


def _filters(params: SamplingParams, vocab_size: int) -> tuple[float, float, float, float]:
    """Temperature, min_p, top_k, top_p, as ``draw_rows`` wants them."""
    if takes_best(params):
        return 0.0, 0.0, vocab_size, 1.0
    temperature = min(max(params.temperature, _MIN_TEMPERATURE), MAX_TEMPERATURE)
    return temperature, params.min_p, min(params.top_k, vocab_size) or vocab_size, params.top_p
