from __future__ import annotations

import numpy as np
import pytest

from core.sampling.draw import random_bits, seeds_to_states


def uniforms(states: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The numbers in [0, 1) that draws make of the bits."""
    return (random_bits(states, positions) >> np.uint64(12)).astype(np.float64) * 2.0**-52


def draw(seed: int, num: int) -> np.ndarray:
    states = np.repeat(seeds_to_states([seed]), num)
    return uniforms(states, np.arange(num, dtype=np.uint64))


def test_numbers_match_published_splitmix64():
    zeros = np.zeros(3, dtype=np.uint64)
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]  # state 0
    expected = [(value >> 12) * 2.0**-52 for value in published]
    assert uniforms(zeros, np.arange(3, dtype=np.uint64)).tolist() == expected


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63), 2**64 + 5, 10**30])
def test_every_integer_is_a_valid_seed(seed):
    u = draw(seed, 1000)
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 0.05


def test_bins_are_filled_evenly():
    counts = np.histogram(draw(1234, 64_000), bins=64, range=(0, 1))[0]
    chi_square = ((counts - 1000) ** 2 / 1000).sum()
    assert chi_square < 110  # 63 degrees of freedom: exceeded once in 5,000 seeds


def test_bins_are_filled_evenly_over_seeds():
    states = seeds_to_states(list(range(64_000)))
    u = uniforms(states, np.zeros(64_000, dtype=np.uint64))
    counts = np.histogram(u, bins=64, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 110


def test_adjacent_seeds_and_positions_are_uncorrelated():
    one, other = draw(7, 10_000), draw(8, 10_000)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.04
    assert abs(np.corrcoef(one[1:], other[:-1])[0, 1]) < 0.04
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.04


def test_u_times_mass_stays_below_mass():
    largest = 1.0 - 2.0**-52
    for mass in np.random.default_rng(0).uniform(1e-30, 1e6, 100_000).tolist():
        assert largest * mass < mass
