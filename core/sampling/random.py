"""Random numbers that depend only on a sequence's seed and position, not on the batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from core.state.sequence import Sequence
from core.system.pinned import upload

UInt64Array = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


class RandomStream:
    """Random numbers for the next token of each sequence, which follows its tokens in flight."""

    def __init__(self, sequences: list[Sequence]) -> None:
        self._sequences = sequences
        self._states = seeds_to_states([sequence.seed for sequence in sequences])

    def uniforms(self, device: torch.device) -> torch.Tensor:
        """Return float64 [num_sequences] in [0, 1)."""
        return upload(uniforms(self._states, self._positions()), device)

    def bits(self, device: torch.device) -> torch.Tensor:
        """Return the bits that ``uniforms`` are made of, int64 [num_sequences]."""
        bits = random_bits(self._states, self._positions())
        return upload(bits.view(np.int64), device)

    def _positions(self) -> UInt64Array:
        return np.array([s.num_sampled_tokens for s in self._sequences], dtype=np.uint64)


def seeds_to_states(seeds: list[int]) -> UInt64Array:
    """Return where the stream of each seed begins. Seeds are any integers, modulo 2**64.

    Seeds are mixed, so that the streams of adjacent seeds are independent.
    """
    states = np.array([seed & 0xFFFFFFFFFFFFFFFF for seed in seeds], dtype=np.uint64)
    return _mix(states + _GOLDEN)


def uniforms(states: UInt64Array, positions: UInt64Array) -> npt.NDArray[np.float64]:
    """Return number ``positions[i]`` of the stream that begins at ``states[i]``, in [0, 1).

    This is SplitMix64 addressed by position: mix(state + (position + 1) * golden ratio).
    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
    with the constants of Vigna's splitmix64.c. The upper 52 bits are used: then u * mass rounds
    to less than mass for every positive float64 mass.
    """
    return (random_bits(states, positions) >> np.uint64(12)).astype(np.float64) * 2.0**-52


def random_bits(states: UInt64Array, positions: UInt64Array) -> UInt64Array:
    """Return the 64 bits of which ``uniforms`` uses the upper 52."""
    return _mix(states + (positions + np.uint64(1)) * _GOLDEN)


def _mix(x: UInt64Array) -> UInt64Array:
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))
