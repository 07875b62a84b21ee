"""Stream: the random numbers of some sequences, one per sequence and step."""

from __future__ import annotations

import numpy as np
import torch

from core.sampling.uniform import UInt64Array, random_bits, seeds_to_states, uniforms
from core.sampling.upload import upload
from core.sequence import Sequence


class Stream:
    """Random numbers that belong to each sequence's next token.

    That is the one after those in flight, or, if it ``is_late``, after those that are known.
    """

    def __init__(self, sequences: list[Sequence]) -> None:
        self._sequences = sequences
        self._states = seeds_to_states([sequence.seed for sequence in sequences])

    def uniforms(self, device: torch.device, *, is_late: bool = False) -> torch.Tensor:
        """Float64 [num_sequences], in [0, 1)."""
        return upload(uniforms(self._states, self._positions(is_late=is_late)), device)

    def bits(self, device: torch.device) -> torch.Tensor:
        """What ``uniforms`` are made of, int64 [num_sequences]."""
        bits = random_bits(self._states, self._positions(is_late=False))
        return upload(bits.view(np.int64), device)

    def _positions(self, *, is_late: bool) -> UInt64Array:
        return np.array(
            [
                sequence.num_output_tokens if is_late else sequence.num_sampled_tokens
                for sequence in self._sequences
            ],
            dtype=np.uint64,
        )
