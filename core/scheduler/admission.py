"""Admission: which waiting sequence runs next. Integers and floats only."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as ReadOnly
from itertools import islice

from core.kv.manager import KVCacheManager
from core.scheduler.demand import Demand
from core.sequence import Sequence

NUM_CONSIDERED = 64
"""Waiting sequences, from the head, that may be admitted before a head that does not fit."""


class Admission:
    """The waiting sequences in order of arrival. Core thread only.

    - A sequence fits if there are blocks for all its tokens, one spare block per running sequence,
      and what ``Demand`` expects all of them to allocate before some end. Alone it always fits.
    - After a preemption no sequence fits until one ends: what just ran out is not handed out again.
    - If the head does not fit, sequences that do may pass it. Those that pass it have together at
      most as many expected tokens as the head itself, for all its life. Then nothing is admitted
      before the head, so it does not starve.
    """

    def __init__(self, kv: KVCacheManager, demand: Demand, *, max_num_seqs: int) -> None:
        self._kv = kv
        self._max_num_seqs = max_num_seqs
        self._demand = demand
        self._waiting: deque[Sequence] = deque()
        self._num_arrivals = 0
        self._awaits_end = False  # a sequence was preempted, and none has ended since
        self._passing_failed = False  # no sequence could pass the head, and nothing has changed

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        sequence.arrival = self._num_arrivals
        self._num_arrivals += 1
        self._waiting.append(sequence)
        self._passing_failed = False

    def put_back(self, sequence: Sequence) -> None:
        """Queue a preempted sequence in its place."""
        num_older = sum(waiting.arrival < sequence.arrival for waiting in self._waiting)
        self._waiting.insert(num_older, sequence)
        self._awaits_end = True

    def remove(self, sequence: Sequence) -> None:
        """Remove a waiting sequence that ended."""
        self._waiting.remove(sequence)
        self._passing_failed = False

    def observe_end(self, sequence: Sequence) -> None:
        """Learn from the end of a running sequence."""
        self._demand.observe_end(sequence)
        self._awaits_end = self._passing_failed = False

    def pop(self, running: ReadOnly[Sequence]) -> Sequence | None:
        """Remove and return the next sequence to run beside ``running``, if any may.

        It runs when its blocks are allocated; the next call has it among ``running``.
        """
        if not self._waiting or len(running) >= self._max_num_seqs:
            return None
        if self._awaits_end and running:
            return None
        if self._fits(self._waiting[0], running):
            self._passing_failed = False
            return self._waiting.popleft()
        return None if self._passing_failed else self._pop_passing(running)

    def _pop_passing(self, running: ReadOnly[Sequence]) -> Sequence | None:
        head = self._waiting[0]
        allowance = self._demand.total_tokens(head) - head.num_passed_tokens
        for sequence in islice(self._waiting, 1, NUM_CONSIDERED):
            num_tokens = math.ceil(self._demand.total_tokens(sequence))
            if num_tokens <= allowance and self._fits(sequence, running):
                head.num_passed_tokens += num_tokens
                self._waiting.remove(sequence)
                return sequence
        self._passing_failed = True
        return None

    def _fits(self, sequence: Sequence, running: ReadOnly[Sequence]) -> bool:
        num_running = len(running)
        num_spare_blocks = num_running + 1 if running else 0
        if not self._kv.has_room(
            sequence, num_spare_blocks=num_spare_blocks, num_running=num_running
        ):
            return False
        if not running:
            return True
        growth = self._demand.peak_growth(
            [*running, sequence],
            block_size=self._kv.block_size,
            blocks_per_token=self._kv.num_used_token_blocks / sum(s.num_tokens for s in running),
        )
        return growth <= num_spare_blocks or self._kv.has_room(
            sequence, num_spare_blocks=math.ceil(growth), num_running=num_running
        )
