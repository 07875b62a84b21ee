"""Stream: the random numbers of some sequences, one per sequence and step."""

from __future__ import annotations

import numpy as np
import torch

from core.sampling.uniform import UInt64Array, random_bits, seeds_to_states, uniforms
from core.sampling.upload import upload
from core.sequence import Sequence


class Stream:
    """Random numbers of each sequence's next token, which follows its tokens in flight."""

    def __init__(self, sequences: list[Sequence]) -> None:
        self._sequences = sequences
        self._states = seeds_to_states([sequence.seed for sequence in sequences])

    def uniforms(self, device: torch.device) -> torch.Tensor:
        """Float64 [num_sequences], in [0, 1)."""
        return upload(uniforms(self._states, self._positions()), device)

    def bits(self, device: torch.device) -> torch.Tensor:
        """What ``uniforms`` are made of, int64 [num_sequences]."""
        bits = random_bits(self._states, self._positions())
        return upload(bits.view(np.int64), device)

    def _positions(self) -> UInt64Array:
        return np.array([s.num_sampled_tokens for s in self._sequences], dtype=np.uint64)
