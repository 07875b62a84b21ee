"""Penalties: change the logits of tokens that occurred before."""

from __future__ import annotations

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.kernels.cpu.library import kernels
from core.kernels.cpu.sampling import Entries, penalise
from core.sampling.processors.protocol import Float64Array
from core.sampling.processors.protocol import entries as addresses
from core.state.sequence import Sequence


class Penalties:
    """``repetition_penalty``, then ``frequency_penalty`` and ``presence_penalty``.

    With l the logit of a token that occurs c times in the output:

    - repetition, if the token occurs in the prompt or the output: l / r if l > 0, else l * r
      (Keskar et al., "CTRL", 2019, as commonly extended to negative logits);
    - l - frequency * c - presence * (c > 0), as in OpenAI's API.

    Counts are kept per sequence and grow by the new tokens of each step. A step costs one pass over
    the distinct tokens, on a CPU in a kernel; counting all tokens in each step would make a long
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
        counts = self._counted(sequences)
        library = kernels() if logits.device.type == "cpu" else None
        if library is not None:
            entries = [own.entries(row) for row, own in zip(rows, counts, strict=True)]
            penalise(library, logits, entries, [own.penalties for own in counts])
        else:
            _penalise(logits, rows, counts)

    def _counted(self, sequences: list[Sequence]) -> list[_Counts]:
        """The counts of these sequences, up to now. Others are dropped."""
        known, self._counts = self._counts, {}
        for sequence in sequences:
            counts = known.get(id(sequence))
            if counts is None or counts.sequence is not sequence:
                counts = _Counts(sequence)
            counts.update()
            self._counts[id(sequence)] = counts
        return list(self._counts.values())


def _penalise(logits: torch.Tensor, rows: list[int], counts: list[_Counts]) -> None:
    """Do the same as the kernel ``penalise``, on any device."""
    ids: list[Float64Array] = []
    factors: list[Float64Array] = []
    offsets: list[Float64Array] = []
    for own in counts:
        repetition, frequency, presence = own.penalties
        seen, times = own.view()
        ids.append(seen)
        factors.append(np.full(len(seen), repetition))
        offsets.append(frequency * times + presence * (times > 0))
    index, tokens, columns = addresses(logits, rows, ids, factors, offsets)
    factor, offset = columns
    old = logits[index, tokens]
    logits[index, tokens] = torch.where(old > 0, old / factor, old * factor) - offset


class _Counts:
    """The distinct tokens of one sequence, and how often each occurs in its output."""

    __slots__ = ("_addresses", "_ids", "_num_seen", "_places", "_times", "penalties", "sequence")

    def __init__(self, sequence: Sequence) -> None:
        params = sequence.params
        self.sequence = sequence
        self.penalties = (
            params.repetition_penalty,
            params.frequency_penalty,
            params.presence_penalty,
        )
        self._places: dict[int, int] = {}
        self._ids: Float64Array = np.zeros(0)
        self._times: Float64Array = np.zeros(0)
        self._grow(64)
        # Only the repetition penalty applies to prompt tokens.
        repeats = params.repetition_penalty != 1.0
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

    def entries(self, row: int) -> Entries:
        """Return ``view`` as the kernel reads it."""
        return row, len(self._places), *self._addresses

    def _place(self, token_id: int) -> int:
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._ids):
            self._grow(2 * place)
        self._ids[place] = token_id
        return place

    def _grow(self, size: int) -> None:
        """Make room for so many distinct tokens."""
        ids, times = np.zeros(size), np.zeros(size)
        num_kept = len(self._ids)
        ids[:num_kept], times[:num_kept] = self._ids, self._times
        self._ids, self._times = ids, times
        self._addresses = ids.ctypes.data, times.ctypes.data
