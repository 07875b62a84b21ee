"""SchedulerOutput: what one step computes."""

from __future__ import annotations

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
