"""Demand: how many blocks running sequences are expected to need before enough of them end."""

from __future__ import annotations

from collections.abc import Iterable

from core.sequence import Sequence

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
        self._shares: dict[int, tuple[float, int]] = {}  # share, ended sequences

    def observe_end(self, sequence: Sequence) -> None:
        """Learn from a sequence that ended in any way after it began to sample."""
        max_tokens = sequence.params.max_tokens
        if sequence.num_output_tokens == 0:
            return
        share, num_ended = self._shares.get(_kind_of(max_tokens), (_first_share(max_tokens), 0))
        num_ended += 1
        weight = max(NEWEST_WEIGHT, 1 / (num_ended + 1))
        share += weight * (sequence.num_output_tokens / max_tokens - share)
        self._shares[_kind_of(max_tokens)] = share, num_ended

    def remaining_tokens(self, sequence: Sequence) -> float:
        """Expected number of tokens that the sequence still samples.

        An output near or above the expected length is expected to use two thirds of the share of
        what is left of ``max_tokens``.
        """
        max_tokens = sequence.params.max_tokens
        share = self._share(max_tokens)
        num_sampled_tokens = sequence.num_sampled_tokens
        tail = share * (max_tokens - num_sampled_tokens) * 2 / 3
        return max(share * max_tokens - num_sampled_tokens, tail)

    def total_tokens(self, sequence: Sequence) -> float:
        """Expected number of tokens of the sequence at its end, prompt included."""
        return sequence.num_tokens + self.remaining_tokens(sequence)

    def peak_growth(
        self, sequences: Iterable[Sequence], *, block_size: int, blocks_per_token: float
    ) -> float:
        """Blocks that sequences which all compute are expected to allocate before some end.

        It is the largest value over time of the blocks allocated from now on less those freed. A
        sequence frees ``blocks_per_token`` for each token that it has now: less than
        ``1 / block_size`` if sequences share blocks.
        """
        ends = sorted((self.remaining_tokens(s), s.num_tokens) for s in sequences)
        peak = freed = 0.0
        num_alive = len(ends)
        for remaining, num_tokens in ends:
            peak = max(peak, num_alive * remaining / block_size - freed)
            freed += num_tokens * blocks_per_token
            num_alive -= 1
        return peak

    def _share(self, max_tokens: int) -> float:
        found = self._shares.get(_kind_of(max_tokens))
        return _first_share(max_tokens) if found is None else found[0]


def _kind_of(max_tokens: int) -> int:
    return max_tokens.bit_length()


def _first_share(max_tokens: int) -> float:
    return FIRST_EXPECTATION / max(max_tokens, FIRST_EXPECTATION)  # 1 for a scored prompt too
