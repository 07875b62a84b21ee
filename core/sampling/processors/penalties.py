"""Penalties: change the logits of tokens that occurred before."""

from __future__ import annotations

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.sampling.processors.entries import Float64Array, entries
from core.sequence import Sequence


class Penalties:
    """``repetition_penalty``, then ``frequency_penalty`` and ``presence_penalty``.

    With l the logit of a token that occurs c times in the output:

    - repetition, if the token occurs in the prompt or the output: l / r if l > 0, else l * r
      (Keskar et al., "CTRL", 2019, as commonly extended to negative logits);
    - l - frequency * c - presence * (c > 0), as in OpenAI's API.

    Counts are kept per sequence and grow by the new tokens of each step. A step costs one gather
    and scatter of the distinct tokens; counting all tokens in each step would make a long
    generation quadratic. The counts of a sequence that is not in the batch are dropped, and made
    again if it comes back, so memory never exceeds one batch.
    """

    reads_tokens = True

    def __init__(self) -> None:
        self._counts: dict[int, _Counts] = {}

    def applies(self, params: SamplingParams) -> bool:
        return params.has_penalties

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        """Update the counts and change the logits of all counted tokens."""
        known = self._counts
        self._counts = {}
        ids: list[Float64Array] = []
        factors: list[Float64Array] = []
        offsets: list[Float64Array] = []
        for sequence in sequences:
            counts = known.get(id(sequence))
            if counts is None or counts.sequence is not sequence:
                counts = _Counts(sequence)
            self._counts[id(sequence)] = counts
            counts.update()
            params = sequence.params
            seen, times = counts.view()
            ids.append(seen)
            factors.append(np.full(len(seen), params.repetition_penalty))
            offsets.append(params.frequency_penalty * times + params.presence_penalty * (times > 0))
        index, tokens, columns = entries(logits, rows, ids, factors, offsets)
        factor, offset = columns
        old = logits[index, tokens]
        logits[index, tokens] = torch.where(old > 0, old / factor, old * factor) - offset


class _Counts:
    """The distinct tokens of one sequence, and how often each occurs in its output."""

    __slots__ = ("_ids", "_num_seen", "_places", "_times", "sequence")

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self._places: dict[int, int] = {}
        self._ids = np.zeros(64)
        self._times = np.zeros(64)
        # Only the repetition penalty applies to prompt tokens.
        repeats = sequence.params.repetition_penalty != 1.0
        self._num_seen = 0 if repeats else sequence.num_prompt_tokens

    def update(self) -> None:
        """Count the tokens added since the last call."""
        token_ids = self.sequence.token_ids
        num_prompt_tokens = self.sequence.num_prompt_tokens
        for position in range(self._num_seen, len(token_ids)):
            place = self._place(token_ids[position])
            if position >= num_prompt_tokens:
                self._times[place] += 1
        self._num_seen = len(token_ids)

    def view(self) -> tuple[Float64Array, Float64Array]:
        """Return distinct tokens and their counts; views that are valid until ``update``."""
        return self._ids[: len(self._places)], self._times[: len(self._places)]

    def _place(self, token_id: int) -> int:
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._times = np.concatenate([self._times, np.zeros_like(self._times)])
        self._ids[place] = token_id
        return place
