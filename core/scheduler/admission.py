"""Admission: which waiting sequence runs next. Integers and floats only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence as ReadOnly
from functools import partial
from itertools import islice

from core.kv.manager import KVCacheManager, Release
from core.scheduler.demand import Demand, End, peak_growth
from core.state.fair_queue import FairQueue
from core.state.sequence import Sequence

NUM_CONSIDERED = 32
"""Waiting sequences, from the head, that may be admitted before a head that does not fit."""


class SequenceAdmission:
    """The waiting sequences in the order of FairQueue, by tokens. Core thread only.

    - A sequence fits if there are blocks for all its tokens, one spare block per running sequence,
      and what ``Demand`` expects all of them to allocate before some end. Alone it always fits.
    - After a preemption no sequence fits until one ends: what just ran out is not handed out again.
    - If the head does not fit, sequences that do may pass it. Those that pass it have together at
      most as many expected tokens as the head itself, for all its life. Then nothing is admitted
      before the head, so it does not starve.
    - If nothing could be admitted, the next attempt is after an arrival, an end, or as many steps
      as a block has tokens: running sequences change little meanwhile.
    - If the head's tenant has no running sequence and others have several, some of theirs are
      preempted for it: see ``pop_for_share``.
    """

    def __init__(self, kv: KVCacheManager, demand: Demand, *, max_num_seqs: int) -> None:
        self._kv = kv
        self._max_num_seqs = max_num_seqs
        self._demand = demand
        self._waiting = _fair_queue(demand)
        self._num_arrivals = 0
        self._awaits_end = False  # a sequence was preempted, and none has ended since
        self._num_skipped = 0  # calls of ``pop`` that will return at once
        self._denied: Sequence | None = None  # the head, if preempting others would not help it

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        sequence.arrival = self._num_arrivals
        self._num_arrivals += 1
        self._waiting.add(sequence)
        self._try_again()

    def put_back(self, sequence: Sequence, *, is_short: bool) -> None:
        """Queue a preempted sequence in its place. ``is_short``: the blocks had run out."""
        self._waiting.add(sequence)
        if is_short:
            self._awaits_end = True
            self._denied = sequence

    def remove(self, sequence: Sequence) -> None:
        """Remove a waiting sequence that ended."""
        self._waiting.remove(sequence, sequence.num_output_tokens)
        self._try_again()

    def clear(self) -> None:
        """Forget every waiting sequence, and what tenants were charged."""
        self._waiting = _fair_queue(self._demand)
        self._awaits_end = False
        self._try_again()

    def observe_end(self, sequence: Sequence) -> None:
        """Learn from the end of a running sequence."""
        self._demand.observe_end(sequence)
        self._waiting.settle(sequence, sequence.num_tokens - sequence.num_cached_tokens)
        self._awaits_end = False
        self._try_again()

    def pop(self, running: ReadOnly[Sequence]) -> Sequence | None:
        """Remove and return the next sequence to run beside ``running``, if any may.

        It runs when its blocks are allocated; the next call has it among ``running``.
        """
        if not self._waiting or len(running) >= self._max_num_seqs:
            return None
        if self._awaits_end and running:
            return None
        if self._num_skipped and running:
            self._num_skipped -= 1
            return None
        ends = self._ends_of(running)
        sequence: Sequence | None = self._waiting.head
        if not self._fits(self._waiting.head, ends):
            sequence = self._passing(ends)
        if sequence is None:
            self._num_skipped = self._kv.block_size
        else:
            self._waiting.take(sequence)
        return sequence

    def pop_for_share(self, running: ReadOnly[Sequence]) -> tuple[Sequence, list[Sequence]] | None:
        """For a tenant without running sequences: its next one, and those to preempt for it.

        Call it when ``pop`` has returned None. At most half of the running sequences are preempted,
        and the last one of no tenant.
        """
        if not self._waiting or self._waiting.head is self._denied:
            return None
        head = self._waiting.head
        if any(sequence.request.tenant == head.request.tenant for sequence in running):
            return None
        rest, release = list(running), self._kv.release()
        victims: list[Sequence] = []
        while len(victims) < len(running) // 2 and (victim := victim_of(rest, at_least=2)):
            rest.remove(victim)
            victims.append(victim)
            release.add(victim)
            if self._fits(head, self._ends_of(rest), release):
                self._waiting.take(head)
                return head, victims
        self._denied = head
        return None

    def _try_again(self) -> None:
        """Let the next call of ``pop`` and ``pop_for_share`` consider the head again."""
        self._num_skipped = 0
        self._denied = None

    def _ends_of(self, running: ReadOnly[Sequence]) -> list[End]:
        return sorted(map(self._demand.end_of, running))

    def _passing(self, ends: list[End]) -> Sequence | None:
        """The first sequence that may pass the head."""
        head = self._waiting.head
        allowance = self._demand.total_tokens(head) - head.num_passed_tokens
        for sequence in islice(self._waiting, 1, NUM_CONSIDERED):
            num_tokens = math.ceil(self._demand.total_tokens(sequence))
            if num_tokens <= allowance and self._fits(sequence, ends):
                head.num_passed_tokens += num_tokens
                return sequence
        return None

    def _fits(self, sequence: Sequence, ends: list[End], release: Release | None = None) -> bool:
        """Whether the sequence may run beside those that end at ``ends``, which are sorted.

        ``release`` is what others give up for it.
        """
        num_running = len(ends)
        num_spare_blocks = num_running + 1 if ends else 0
        has_room = partial(self._kv.has_room, sequence, num_running=num_running, release=release)
        if not has_room(num_spare_blocks=num_spare_blocks):
            return False
        if not ends:
            return True
        num_freed = 0 if release is None else len(release.freed(0))
        num_tokens = sum(num_tokens for _, num_tokens in ends)
        growth = peak_growth(
            [*ends, self._demand.end_of(sequence)],
            block_size=self._kv.block_size,
            blocks_per_token=(self._kv.num_used_token_blocks - num_freed) / num_tokens,
        )
        return growth <= num_spare_blocks or has_room(num_spare_blocks=math.ceil(growth))


def _fair_queue(demand: Demand) -> FairQueue[Sequence]:
    """An empty queue. One that was preempted and queued again stays charged, in its old place."""
    return FairQueue(
        demand.total_tokens,
        tenant=lambda sequence: sequence.request.tenant,
        place=lambda sequence: (sequence.request.priority, sequence.arrival),
    )


def victim_of(running: ReadOnly[Sequence], *, at_least: int = 1) -> Sequence | None:
    """A sequence of the tenant that has the most, if it has ``at_least`` so many.

    ``running`` is in order of admission. Of tenants with equally many, it is that of the last
    admitted sequence. Of its sequences with the largest ``priority``, it is the last admitted.
    """
    counts = Counter(sequence.request.tenant for sequence in running)
    most = max(counts.values(), default=0)
    if most < at_least:
        return None
    tenants = (sequence.request.tenant for sequence in reversed(running))
    tenant = next((name for name in tenants if counts[name] == most), None)
    own = (sequence for sequence in reversed(running) if sequence.request.tenant == tenant)
    return max(own, key=_priority, default=None)  # the first of equal ones


def _priority(sequence: Sequence) -> int:
    return sequence.request.priority
