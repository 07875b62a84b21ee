"""RowDraw: one token per row, and the implementation that suits the device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.kernels.cpu import sampling
from core.kernels.cpu.library import kernels
from core.sampling import torch_draw
from core.sampling.random import RandomStream
from core.state.sequence import Sequence
from core.system.pinned import upload

RowDraw: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Samples one token per row from logits, filters and random bits; returns int64 [num_rows].

``logits`` is [num_rows, vocab_size] of any float type, rows contiguous. ``filters`` is float64
[4, num_rows]: temperature (0: the best token), min_p (0: off, below 1), top_k (``vocab_size``:
off), top_p (1: off, above 0). ``random_bits`` is int64 [num_rows]; a draw uses the upper 52.

The filters apply in this order: min_p, top_k, top_p. Equal logits rank in order of ids. A row with
NaN or infinity gives FAILED, one of only -inf MASKED.
"""

_MAX_TEMPERATURE = 1e30
"""The draw is uniform well below it; higher temperatures overflow float32."""


def load_row_draw(vocab_size: int, dtype: torch.dtype, device: torch.device) -> RowDraw:
    """Return the draw that suits the device.

    On CUDA it is compiled here, for logits of ``dtype`` and float32, and reads nothing back.
    """
    if device.type != "cuda":
        library = kernels()
        if library is None:
            return torch_draw.draw_rows
        return functools.partial(sampling.draw_rows, library)
    from core.kernels.triton.draw import draw_rows  # noqa: PLC0415 - needs Triton

    filters = torch.ones(4, 1, dtype=torch.float64, device=device)
    bits = torch.zeros(1, dtype=torch.int64, device=device)
    for kind in {dtype, torch.float32}:  # edited logits are float32
        draw_rows(torch.zeros(1, vocab_size, dtype=kind, device=device), filters, bits)
    return draw_rows


def takes_best(params: SamplingParams) -> bool:
    """Whether only the best token can be chosen."""
    return params.is_greedy or params.top_k == 1 or params.min_p >= 1.0 or params.top_p <= 0.0


class RandomRows:
    """Draws all rows of a batch, greedy ones too."""

    def __init__(
        self, sequences: list[Sequence], draw: RowDraw, *, vocab_size: int, device: torch.device
    ) -> None:
        self._draw = draw
        self._stream = RandomStream(sequences)
        filters = [_filters(sequence.params, vocab_size) for sequence in sequences]
        self._filters = upload(np.array(filters, dtype=np.float64).T.copy(), device)

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Return int64 [num_rows], FAILED or MASKED where there is no token."""
        return self._draw(logits, self._filters, self._stream.bits(logits.device))


def _filters(params: SamplingParams, vocab_size: int) -> tuple[float, float, float, float]:
    """Return temperature, min_p, top_k and top_p in the form that RowDraw takes."""
    if takes_best(params):
        return 0.0, 0.0, vocab_size, 1.0
    temperature = min(params.temperature, _MAX_TEMPERATURE)
    return temperature, params.min_p, min(params.top_k, vocab_size) or vocab_size, params.top_p
