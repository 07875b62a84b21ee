"""Demand: how many blocks running sequences are expected to need before enough of them end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from core.state.sequence import Sequence

End: TypeAlias = tuple[float, int]
"""Tokens that a sequence will still sample, and tokens that it has now."""

FIRST_EXPECTATION = 1024
"""Output tokens that a request with a larger ``max_tokens`` is expected to use, until one like it
has ended. One with a smaller ``max_tokens`` is expected to use all of them."""

NEWEST_WEIGHT = 1 / 16
"""Weight of the last ended sequence in the mean share, once 15 have ended."""


class Demand:
    """Learns the share of ``max_tokens`` that outputs use. Core thread only; integers and floats.

    Shares are learned apart for each power of two of ``max_tokens``: requests that ask for as many
    tokens as the context allows end much earlier than those that ask for few.
    """

    def __init__(self) -> None:
        self._shares: dict[int, tuple[float, int]] = {}  # by kind: share, ended sequences

    def observe_end(self, sequence: Sequence) -> None:
        """Learn from a sequence that ended in any way after it began to sample."""
        max_tokens = sequence.params.max_tokens
        if sequence.num_output_tokens == 0:
            return
        kind = max_tokens.bit_length()
        share, num_ended = self._shares.get(kind, (_first_share(max_tokens), 0))
        num_ended += 1
        weight = max(NEWEST_WEIGHT, 1 / (num_ended + 1))
        share += weight * (sequence.num_output_tokens / max_tokens - share)
        self._shares[kind] = share, num_ended

    def remaining_tokens(self, sequence: Sequence) -> float:
        """Expected number of tokens that the sequence still samples.

        An output near or above the expected length is expected to use two thirds of the share of
        what is left of ``max_tokens``.
        """
        max_tokens = sequence.params.max_tokens
        found = self._shares.get(max_tokens.bit_length())
        share = _first_share(max_tokens) if found is None else found[0]
        num_sampled_tokens = sequence.num_sampled_tokens
        remaining = share * max_tokens - num_sampled_tokens
        tail = share * (max_tokens - num_sampled_tokens) * 2 / 3
        return max(tail, remaining)

    def total_tokens(self, sequence: Sequence) -> float:
        """Expected number of tokens of the sequence at its end, prompt included."""
        return sequence.num_tokens + self.remaining_tokens(sequence)

    def end_of(self, sequence: Sequence) -> End:
        """When the sequence is expected to end, and what it holds."""
        return self.remaining_tokens(sequence), sequence.num_tokens


def peak_growth(ends: Iterable[End], *, block_size: int, blocks_per_token: float) -> float:
    """Blocks that sequences which all compute are expected to allocate before some end.

    It is the largest value over time of the blocks allocated from now on less those freed. A
    sequence frees ``blocks_per_token`` for each token that it has now: less than
    ``1 / block_size`` if sequences share blocks.
    """
    ends = sorted(ends)
    peak = freed = 0.0
    num_alive = len(ends)
    for remaining, num_tokens in ends:
        peak = max(peak, num_alive * remaining / block_size - freed)
        freed += num_tokens * blocks_per_token
        num_alive -= 1
    return peak


def _first_share(max_tokens: int) -> float:
    return FIRST_EXPECTATION / max(max_tokens, FIRST_EXPECTATION)  # 1 for a scored prompt too
