"""RowDraw: one token per row, and the implementation that suits the device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from core.contract.params import SamplingParams
from core.kernels.cpu import sampling
from core.kernels.cpu.library import kernels
from core.sampling import torch_draw
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


UInt64Array = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


class RandomStream:
    """Random numbers for the next token of each sequence, which follows its tokens in flight."""

    def __init__(self, sequences: list[Sequence]) -> None:
        self._sequences = sequences
        self._states = seeds_to_states([sequence.seed for sequence in sequences])

    def bits(self, device: torch.device) -> torch.Tensor:
        """Return ``random_bits``, int64 [num_sequences]."""
        positions = np.array([s.num_sampled_tokens for s in self._sequences], dtype=np.uint64)
        return upload(random_bits(self._states, positions).view(np.int64), device)


def seeds_to_states(seeds: list[int]) -> UInt64Array:
    """Return where the stream of each seed begins. Seeds are any integers, modulo 2**64.

    Seeds are mixed, so that the streams of adjacent seeds are independent.
    """
    states = np.array([seed & 0xFFFFFFFFFFFFFFFF for seed in seeds], dtype=np.uint64)
    return _mix(states + _GOLDEN)


def random_bits(states: UInt64Array, positions: UInt64Array) -> UInt64Array:
    """Return 64 bits, number ``positions[i]`` of the stream that begins at ``states[i]``.

    This is SplitMix64 addressed by position: mix(state + (position + 1) * golden ratio).
    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
    with the constants of Vigna's splitmix64.c. A draw makes a number u in [0, 1) of the upper 52
    bits: then u * mass rounds to less than mass for every positive float64 mass.
    """
    return _mix(states + (positions + np.uint64(1)) * _GOLDEN)


def _mix(x: UInt64Array) -> UInt64Array:
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))
