"""SchedulerOutput: what one step computes. PromptRows: what tokens of prompts cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from core.state.sequence import Sequence


class ScheduledSequence:
    """A sequence and the number of its pending tokens that a step computes.

    ``num_computed_tokens`` is the sequence's count when the step was scheduled; the sequence
    changes while the step is in flight. With ``samples`` the step computes the last pending token
    and samples the next one.
    """

    __slots__ = (
        "_epoch",
        "_num_cached_tokens",
        "block_tables",
        "num_computed_tokens",
        "num_tokens",
        "samples",
        "sequence",
    )

    def __init__(self, sequence: Sequence, num_tokens: int, *, samples: bool) -> None:
        self.sequence = sequence
        self.num_tokens = num_tokens
        self.num_computed_tokens = sequence.num_computed_tokens
        self.samples = samples
        self.block_tables = sequence.block_tables  # keep their blocks when it gives them up
        self._num_cached_tokens = sequence.num_cached_tokens
        self._epoch = sequence.epoch

    @property
    def is_stale(self) -> bool:
        """Whether the sequence ended or was preempted after the step was scheduled."""
        return self._epoch != self.sequence.epoch

    @property
    def end(self) -> int:
        """Computed tokens of the sequence after the step."""
        return self.num_computed_tokens + self.num_tokens

    @property
    def num_pairs(self) -> float:
        """Pairs of a token that is computed and one that it attends to, about."""
        return self.num_tokens * (self.num_computed_tokens + self.end) / 2

    def launch(self) -> None:
        """Count the step's tokens as computed, and the token it samples as in flight."""
        self.sequence.num_computed_tokens += self.num_tokens
        self.sequence.num_in_flight += self.samples

    def land(self) -> None:
        """The sampled token is no longer in flight; the caller appends it."""
        self.sequence.num_in_flight -= self.samples

    def retracted(self) -> ScheduledSequence:
        """Take the sequence back to before the launch; returns the same work, not launched.

        Items of the sequence that were scheduled since become stale. Every step before this one
        must have landed.
        """
        sequence = self.sequence
        sequence.epoch += 1
        sequence.num_computed_tokens = self.num_computed_tokens
        sequence.num_cached_tokens = self._num_cached_tokens
        sequence.num_in_flight = 0
        return ScheduledSequence(sequence, self.num_tokens, samples=self.samples)


@dataclass(slots=True)
class SchedulerOutput:
    """The sequences of one step."""

    scheduled: list[ScheduledSequence] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Computed tokens of all sequences."""
        return sum(item.num_tokens for item in self.scheduled)


class PromptRows:
    """A row is the cost of a token that attends to nothing: its products with the weights.

    Attention to ``keys_per_row`` keys costs another one. So a token after 3,000 others may cost
    twice as much as the first.
    """

    def __init__(self, keys_per_row: float = math.inf) -> None:
        self._rows_per_key = 1 / keys_per_row

    def of_pairs(self, num_pairs: float) -> float:
        """Cost of attention, for so many pairs of a token and one that it attends to."""
        return self._rows_per_key * num_pairs

    def of(self, start: int, num_tokens: int) -> int:
        """Cost of ``num_tokens`` after the first ``start`` of a prompt, to the nearest row."""
        return num_tokens + round(self.of_pairs(num_tokens * (start + num_tokens / 2)))

    def fitting(self, start: int, rows: int) -> int:
        """The most tokens after the first ``start`` of a prompt that cost at most ``rows``."""
        rows = max(rows, 0)
        linear, square = 1 + self._rows_per_key * start, self._rows_per_key / 2
        found = int(2 * rows / (linear + math.sqrt(linear * linear + 4 * square * rows)))
        return found + (self.of(start, found + 1) <= rows)
