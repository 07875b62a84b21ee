"""Scheduler: decides who computes how many tokens in a step. Never imports torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from core.kv.manager import KVCacheManager
from core.sequence import Sequence, Status


class ScheduledSequence:
    """One sequence and how many of its pending tokens this step computes.

    The sequence moves on while the step is in flight: what it was like when the step was decided
    is kept. ``samples`` says whether the step reaches its last token, so that the next one can be
    chosen.
    """

    __slots__ = ("_epoch", "num_computed_tokens", "num_tokens", "samples", "sequence")

    def __init__(self, sequence: Sequence, num_tokens: int, *, samples: bool) -> None:
        self.sequence = sequence
        self.num_tokens = num_tokens
        self.num_computed_tokens = sequence.num_computed_tokens
        self.samples = samples
        self._epoch = sequence.epoch

    @property
    def is_stale(self) -> bool:
        """Whether the sequence has ended or been preempted since."""
        return self._epoch != self.sequence.epoch

    @property
    def end(self) -> int:
        """Tokens that are computed after the step."""
        return self.num_computed_tokens + self.num_tokens

    def launch(self) -> None:
        """Count what the device was told to compute, and the token that will come of it."""
        self.sequence.num_computed_tokens += self.num_tokens
        self.sequence.num_in_flight += self.samples

    def land(self) -> None:
        """The token is there, to be added to those that are known."""
        self.sequence.num_in_flight -= self.samples


@dataclass(slots=True)
class SchedulerOutput:
    """The decision for one step, and nothing else."""

    scheduled: list[ScheduledSequence] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens that the step computes."""
        return sum(item.num_tokens for item in self.scheduled)


class Scheduler:
    """Streams keep flowing, and no request waits for another's whole prompt.

    - Every sequence with a single pending token, which are those that are streaming, is in every
      step. Beside them at most ``prefill_chunk_size`` tokens of longer ones are computed, so
      that the gap between two tokens of a stream is one small chunk at worst. Where nobody
      streams, the token budget of the step, ``max_num_batched_tokens``, is the only limit.
    - Half of what is computed of prompts is kept for the oldest that has some left, so that
      everyone's turn comes. All, the oldest too, are served from what is left: the shortest
      remainder first, equal ones in order of age. So a short prompt passes long ones, which
      takes at most half of their speed, and equal ones end one after the other, not all at last.
    - A chunk that does not reach the last token ends with a block. Whoever has the same prefix
      takes over all of it and goes on behind, in the same step: nothing is computed twice.
    - Admission is first come first served. It does not wait for the budget, only for a seat and
      for blocks: for all known tokens, and one to spare for each that will then run. When blocks
      run out, the last admitted gives up its own and is recomputed later. Thanks to the spare
      ones, nobody has to before he has run for as many steps as a block has tokens.

    Owned by the core thread.
    """

    def __init__(
        self,
        kv: KVCacheManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        prefill_chunk_size: int | None = None,
        max_scored_tokens: int = 256,
    ) -> None:
        """``max_scored_tokens`` bounds a chunk whose every position needs its logits.

        Without ``prefill_chunk_size`` there is no limit beside streams but the token budget.
        """
        assert max_num_batched_tokens >= max_num_seqs
        self._kv = kv
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._prefill_chunk_size = prefill_chunk_size or max_num_batched_tokens
        self._max_scored_tokens = max_scored_tokens
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # in order of arrival, and all came before the waiting
        self.num_preemptions = 0

    @property
    def num_waiting(self) -> int:
        """Sequences that hold no blocks."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Sequences that hold blocks."""
        return len(self._running)

    def __iter__(self) -> Iterator[Sequence]:
        """Every unfinished sequence."""
        yield from self._running
        yield from self._waiting

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        self._waiting.append(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is, and take its blocks back."""
        if sequence.status is Status.RUNNING:
            self._running.remove(sequence)
            self._kv.free(sequence)
        elif sequence.status is Status.WAITING:
            self._waiting.remove(sequence)
        sequence.status = Status.FINISHED
        sequence.epoch += 1

    def schedule(self) -> SchedulerOutput:
        """Decide the next step. Every sequence in it has its blocks.

        All that may leave a sequence out of the step comes before the first is published: from
        then on there are blocks to adopt that only this step computes. (A sequence whose last
        token is in flight has nothing to compute, and nothing to adopt.)
        """
        for sequence in [s for s in self._running if s.num_pending_tokens > 1]:
            self._adopt(sequence)
        self._make_room()
        self._admit()
        single, longer = [], []
        for sequence in self._running:
            num_pending_tokens = sequence.num_pending_tokens
            if num_pending_tokens == 1:
                single.append(sequence)
            elif num_pending_tokens > 1:
                longer.append(sequence)
        self._kv.publish_singles(single)
        scheduled = [ScheduledSequence(sequence, 1, samples=True) for sequence in single]
        if longer:
            budget = self._max_num_batched_tokens - len(scheduled)
            if scheduled:
                budget = min(budget, self._prefill_chunk_size)
            scheduled += self._share(budget, longer)
        return SchedulerOutput(scheduled)

    def _make_room(self) -> None:
        """Give everyone who runs blocks for all tokens, the last admitted paying for it."""
        for sequence in self._kv.short_of_blocks(self._running):
            while sequence.status is Status.RUNNING and not self._kv.allocate(sequence):
                self._preempt(self._running[-1])

    def _admit(self) -> None:
        """Seat those who wait, in their order, as far as seats and blocks reach."""
        while self._waiting and len(self._running) < self._max_num_seqs:
            sequence = self._waiting[0]
            num_spare_blocks = len(self._running) + 1 if self._running else 0
            if not self._kv.has_room(sequence, num_spare_blocks=num_spare_blocks):
                break
            self._adopt(sequence)
            has_blocks = self._kv.allocate(sequence)
            assert has_blocks
            sequence.status = Status.RUNNING
            self._running.append(self._waiting.popleft())

    def _share(self, budget: int, longer: list[Sequence]) -> list[ScheduledSequence]:
        """Part the budget among sequences with more than one pending token, in order of age.

        Each takes something or is left out: a chunk too short to end with a block would take the
        next one's place for nothing, and only the oldest must get on by all means.
        """
        scheduled: list[ScheduledSequence] = []
        oldest = longer[0]
        kept = min(-(-budget // 2), self._longest_chunk(oldest))
        for sequence in sorted(longer, key=_num_pending_tokens):  # equal ones: as they were
            if sequence is oldest:
                kept = 0
            elif budget - kept < min(self._kv.block_size, self._longest_chunk(sequence)):
                continue
            scheduled.append(self._plan_chunk(sequence, budget - kept))
            budget -= scheduled[-1].num_tokens
        return scheduled

    def _plan_chunk(self, sequence: Sequence, budget: int) -> ScheduledSequence:
        self._adopt(sequence)  # also of what those before it in this step will have computed
        start, num_pending_tokens = sequence.num_computed_tokens, sequence.num_pending_tokens
        end = start + min(budget, self._longest_chunk(sequence))
        if self._kv.block_size <= end - start < num_pending_tokens:
            end -= end % self._kv.block_size
        self._kv.publish(sequence, end)
        return ScheduledSequence(sequence, end - start, samples=end - start == num_pending_tokens)

    def _longest_chunk(self, sequence: Sequence) -> int:
        if sequence.params.prompt_logprobs is None:
            return sequence.num_pending_tokens
        return min(sequence.num_pending_tokens, self._max_scored_tokens)

    def _adopt(self, sequence: Sequence) -> None:
        num_cached_tokens = self._kv.adopt(sequence)
        if sequence.num_preemptions == 0:  # recomputed tokens were not saved to the client
            sequence.num_cached_tokens += num_cached_tokens

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._kv.free(sequence)
        sequence.epoch += 1
        sequence.num_in_flight = 0  # the step in flight is stale; its token is sampled again
        self._waiting.appendleft(sequence)
        sequence.status = Status.WAITING
        sequence.num_preemptions += 1
        self.num_preemptions += 1

    def check(self) -> None:
        """Assert the invariants that hold between steps."""
        assert len(self._running) <= self._max_num_seqs
        assert all(s.status is Status.RUNNING for s in self._running)
        assert all(s.status is Status.WAITING and not len(s.block_table) for s in self._waiting)
        assert all(s.num_pending_tokens > 0 or s.num_in_flight for s in self)
        assert all(not s.num_in_flight for s in self._waiting)
        self._kv.check(self._running)


def _num_pending_tokens(sequence: Sequence) -> int:
    return sequence.num_pending_tokens
