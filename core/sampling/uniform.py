"""Uniform numbers that depend on a sequence's seed and position only, never on its neighbours."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

UInt64Array = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def seeds_to_states(seeds: list[int]) -> UInt64Array:
    """Where each seed's stream begins. Seeds are any integers; they count modulo 2**64.

    Seeds are mixed, so that the streams of neighbouring ones have nothing in common.
    """
    states = np.array([seed & 0xFFFFFFFFFFFFFFFF for seed in seeds], dtype=np.uint64)
    return _mix(states + _GOLDEN)


def uniforms(states: UInt64Array, positions: UInt64Array) -> npt.NDArray[np.float64]:
    """Number ``positions[i]`` of the stream that begins at ``states[i]``, in [0, 1).

    This is SplitMix64 addressed by position: mix(state + (position + 1) * golden ratio).
    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
    with the constants of Vigna's splitmix64.c. The upper 52 bits are used: then u * mass rounds
    to less than mass for every positive float64 mass.
    """
    return (random_bits(states, positions) >> np.uint64(12)).astype(np.float64) * 2.0**-52


def random_bits(states: UInt64Array, positions: UInt64Array) -> UInt64Array:
    """The bits that ``uniforms`` takes the upper 52 of."""
    return _mix(states + (positions + np.uint64(1)) * _GOLDEN)


def _mix(x: UInt64Array) -> UInt64Array:
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))
