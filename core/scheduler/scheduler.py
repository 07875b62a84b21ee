"""Scheduler: decides which sequences compute how many tokens in a step. Never imports torch.

It admits waiting sequences, asks the KV cache manager for cached prefixes and blocks, preempts if
there are too few, and returns a ``SchedulerOutput``. After the step it frees what has ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from core.kv.manager import KVCacheManager
from core.scheduler.admission import SequenceAdmission, victim_of
from core.scheduler.debts import Debts
from core.scheduler.demand import Demand
from core.scheduler.output import PromptRows, ScheduledSequence, SchedulerOutput
from core.scheduler.step_time import AIM, StepTime, whole_blocks
from core.state.history import StepCounts
from core.state.sequence import Sequence, Status

_TOKENS = PromptRows()
"""Every token costs one row, as long as no duration limits the step."""


class Scheduler:
    """Continuous batching with chunked prefill. Core thread only.

    - Decode: every running sequence with one pending token is in every step. If there is such a
      sequence, the step computes at most as many tokens of prompts as keep its expected duration
      below 0.9 of ``max_step_seconds`` (on a slow machine above it, see ``StepTime``), and at
      most ``prefill_chunk_size``. This bounds the time between two tokens of a stream. A token late
      in a prompt counts more: see ``PromptRows``. A few steps leave waiting prompts out, to measure
      what the streams take alone. Otherwise only ``max_num_batched_tokens`` limits the step.
    - Prefill: tenants get equal shares of the prompt tokens of a step; what one does not need goes
      to the others. One that took a share too much waits while others need more than theirs: see
      ``Debts``. Half of a tenant's share is reserved for its oldest unfinished prompt, so that none
      starves. The rest goes to all its prompts, the shortest remainder first and equal ones by age.
      So a short prompt overtakes long ones at the cost of at most half of their speed, and equal
      prompts finish one after the other.
    - Prefix sharing: beside other prompts, a chunk that does not finish its prompt ends at a block
      boundary. A sequence with the same prefix reuses these blocks and continues after them in the
      same step, so no prefix is computed twice. Chunks of the only prompt may end within a block:
      then a prompt that arrives with the same prefix computes at most one chunk of it again.
    - Admission is in the order of ``FairQueue`` (one tenant: by priority, then first come, first
      served), within the bounds of ``SequenceAdmission``. The token budget does not delay it.
    - Preemption: if blocks run out, a sequence frees its blocks and is recomputed later: of the
      tenant that has the most, the last admitted one of the largest ``priority``. Because of the
      spare blocks, this happens to no sequence before it has run for as many steps as a block has
      tokens. A sequence may also be preempted for a tenant that has none: see
      ``SequenceAdmission``.
    """

    def __init__(
        self,
        kv: KVCacheManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        prefill_chunk_size: int | None = None,
        max_step_seconds: float | None = None,
        max_scored_tokens: int = 256,
        keys_per_row: float = math.inf,
        demand: Demand | None = None,
    ) -> None:
        """``max_scored_tokens`` limits a chunk with prompt log-probabilities.

        ``prefill_chunk_size`` defaults to ``max_num_batched_tokens``. Without ``max_step_seconds``
        the duration of a step is not limited; with it, ``keys_per_row`` is that of PromptRows.
        ``demand`` is what admission expects of sequences.
        """
        assert max_num_batched_tokens >= max_num_seqs
        self._kv = kv
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._prefill_chunk_size = prefill_chunk_size or max_num_batched_tokens
        self._max_scored_tokens = max_scored_tokens
        self._step_time = None if max_step_seconds is None else StepTime(AIM * max_step_seconds)
        self._rows = _TOKENS if max_step_seconds is None else PromptRows(keys_per_row)
        self._admission = SequenceAdmission(kv, demand or Demand(), max_num_seqs=max_num_seqs)
        self._running: list[Sequence] = []  # in order of admission
        self._turns: list[str] = []  # tenants with prefills, in the order of their next turns
        self._debts = Debts()
        self._steps = StepCounts()
        self.num_preemptions = 0

    @property
    def num_waiting(self) -> int:
        return len(self._admission)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Sequence]:
        """All unfinished sequences."""
        yield from self._running
        yield from self._admission

    def add(self, sequence: Sequence) -> None:
        self._admission.add(sequence)

    def observe(
        self, num_tokens: int, num_sequences: int, seconds: float, num_pairs: float = 0.0
    ) -> None:
        """Learn the duration of a step, which decides the size of later chunks of prompts.

        ``num_tokens`` is not 0: an empty step is never run. ``num_pairs`` are those of tokens of
        prompts, each with one that it attends to.
        """
        if self._step_time is not None:
            attention = self._rows.of_pairs(num_pairs)
            self._step_time.observe(num_tokens, num_sequences, seconds, attention)

    def finish(self, sequence: Sequence) -> None:
        """Remove a sequence and free its blocks."""
        if sequence.status is Status.RUNNING:
            self._running.remove(sequence)
            self._kv.free(sequence)
            self._admission.observe_end(sequence)
        elif sequence.status is Status.WAITING:
            self._admission.remove(sequence)
        sequence.status = Status.FINISHED
        sequence.epoch += 1

    def restart(self) -> None:
        """Forget every sequence and all blocks, in whatever state they are."""
        self._kv.restart()
        self._running = []
        self._admission.clear()

    def recompute_holders(self, block_ids: AbstractSet[int], owner: Sequence | None) -> None:
        """Preempt every running sequence but ``owner`` that has one of these blocks.

        Blocks are numbered as in the KVCacheManager.
        """
        for sequence in self._running[::-1]:
            held = self._kv.blocks_of(sequence)
            if sequence is not owner and not block_ids.isdisjoint(held):
                self._preempt(sequence)

    def schedule(self) -> SchedulerOutput:
        """Schedule the next step and allocate its blocks.

        Preemption and admission come first. After the first ``cache_blocks`` the prefix cache has
        blocks that only this step computes, so every sequence that reuses one must be in the step.
        (A sequence whose last token is in flight computes nothing and reuses nothing.)
        """
        for sequence in [s for s in self._running if s.num_pending_tokens > 1]:
            self._reuse_cached(sequence)
        self._allocate()
        self._admit()
        decodes, prefills = [], []
        for sequence in self._running:
            num_pending_tokens = sequence.num_pending_tokens
            if num_pending_tokens == 1:
                decodes.append(sequence)
            elif num_pending_tokens > 1:
                prefills.append(sequence)
        self._kv.cache_decoded_blocks(decodes)
        scheduled = [ScheduledSequence(sequence, 1, samples=True) for sequence in decodes]
        if prefills:
            budget, rows = self._max_num_batched_tokens - len(scheduled), _TOKENS
            if scheduled:
                budget, rows = self._budget_beside(len(scheduled), prefills, budget), self._rows
            if budget:
                scheduled += self._schedule_prefills(prefills, budget, rows)
        if scheduled:
            self._steps.count(len(scheduled))
        return SchedulerOutput(scheduled)

    def _allocate(self) -> None:
        """Allocate blocks for all running sequences, preempting the last admitted if needed."""
        for sequence in self._kv.short_of_blocks(self._running):
            while sequence.status is Status.RUNNING and not self._kv.allocate(sequence):
                victim = victim_of(self._running)
                assert victim is not None
                self._preempt(victim)

    def _admit(self) -> None:
        while (sequence := self._admission.pop(self._running)) is not None:
            self._start(sequence)
        while (choice := self._admission.pop_for_share(self._running)) is not None:
            sequence, victims = choice
            for victim in victims:
                self._preempt(victim, is_short=False)
            self._start(sequence)

    def _start(self, sequence: Sequence) -> None:
        """Run a sequence that admission has chosen: there is room for its blocks."""
        self._reuse_cached(sequence)
        miss = self._kv.miss_of(sequence)
        has_blocks = self._kv.allocate(sequence)
        assert has_blocks
        sequence.status = Status.RUNNING
        sequence.history.start(miss, self._steps)
        self._running.append(sequence)

    def _budget_beside(self, num_decodes: int, prefills: list[Sequence], budget: int) -> int:
        """Rows, ``budget`` at most, of these prompts in a step with ``num_decodes`` streams.

        None of them, if it has to be measured how long the streams take alone.
        """
        budget, size = min(budget, self._prefill_chunk_size), self._kv.block_size
        if self._step_time is None:
            return budget
        limit = self._step_time.prompt_tokens(num_decodes, size)
        if limit is None:
            return budget
        if len(prefills) > 1:
            start = prefills[0].num_computed_tokens
            num_tokens = whole_blocks(self._rows.fitting(start, limit), size)
            limit = max(limit, self._rows.of(start, num_tokens))
        num_pending = 0
        if limit < budget:
            num_pending = sum(
                self._rows.of(s.num_computed_tokens, s.num_pending_tokens) for s in prefills
            )
        if self._step_time.must_measure(num_decodes, num_pending / limit):
            return 0
        return min(budget, limit)

    def _schedule_prefills(
        self, prefills: list[Sequence], budget: int, rows: PromptRows
    ) -> list[ScheduledSequence]:
        """Divide the budget among the tenants of prefills, which are in order of age.

        ``rows`` counts what tokens cost. Each tenant gets at least a block's rows. If there are too
        many tenants for that, they take turns, a new one last: those that have waited longest are
        in this step, unless they have debts (see Debts).
        """
        by_tenant: dict[str, list[Sequence]] = {}
        for sequence in prefills:
            by_tenant.setdefault(sequence.request.tenant, []).append(sequence)
        turns = [n for n in dict.fromkeys([*self._turns, *by_tenant]) if n in by_tenant]
        demands = {name: sum(self._rows_of(s, rows) for s in by_tenant[name]) for name in turns}
        shares = self._debts.shares(demands, budget, max(budget // self._kv.block_size, 1))
        self._turns = sorted(turns, key=shares.__contains__)  # stable: those of this step last
        unit = self._kv.block_size if len(prefills) > 1 else 1
        scheduled: list[ScheduledSequence] = []
        left = 0  # cached blocks need no share
        for name, share in shares.items():
            items = self._divide(by_tenant[name], share + left, unit, rows)
            cost = sum(rows.of(item.num_computed_tokens, item.num_tokens) for item in items)
            self._debts.count(name, cost, share + max(left, 0))
            left += share - cost
            scheduled += items
        return scheduled

    def _divide(
        self, prefills: list[Sequence], budget: int, unit: int, rows: PromptRows
    ) -> list[ScheduledSequence]:
        """Divide the budget among prefills of a tenant, which are in order of age.

        A chunk that does not finish its prompt and is longer than ``unit`` ends at a multiple.

        A sequence is skipped if its chunk would neither finish its prompt nor fill a block. Only
        the oldest always gets a chunk.
        """
        scheduled: list[ScheduledSequence] = []
        oldest = prefills[0]
        reserved = min(-(-budget // 2), self._rows_of(oldest, rows))
        for sequence in sorted(prefills, key=_num_pending_tokens):  # stable: equal ones by age
            if sequence is oldest:
                reserved = 0
            else:
                fitting = rows.fitting(sequence.num_computed_tokens, budget - reserved)
                if fitting < min(self._kv.block_size, self._longest_chunk(sequence)):
                    continue
            item = self._schedule_chunk(sequence, budget - reserved, unit, rows)
            scheduled.append(item)
            budget -= rows.of(item.num_computed_tokens, item.num_tokens)
        return scheduled

    def _schedule_chunk(
        self, sequence: Sequence, budget: int, unit: int, rows: PromptRows
    ) -> ScheduledSequence:
        """A chunk of at least a token, and of two if the budget is: one counts as a stream."""
        self._reuse_cached(sequence)  # also blocks that earlier chunks of this step compute
        start, num_pending_tokens = sequence.num_computed_tokens, sequence.num_pending_tokens
        num_tokens = max(1, min(2, budget), rows.fitting(start, budget))
        end = start + min(num_tokens, self._longest_chunk(sequence))
        if unit <= end - start < num_pending_tokens:
            end -= end % unit
        self._kv.cache_blocks(sequence, end)
        return ScheduledSequence(sequence, end - start, samples=end - start == num_pending_tokens)

    def _rows_of(self, sequence: Sequence, rows: PromptRows) -> int:
        return rows.of(sequence.num_computed_tokens, self._longest_chunk(sequence))

    def _longest_chunk(self, sequence: Sequence) -> int:
        if sequence.params.prompt_logprobs is None:
            return sequence.num_pending_tokens
        return min(sequence.num_pending_tokens, self._max_scored_tokens)

    def _reuse_cached(self, sequence: Sequence) -> None:
        num_cached_tokens = self._kv.reuse_cached(sequence)
        if sequence.num_preemptions == 0:  # reuse after preemption saves the client nothing
            sequence.num_cached_tokens += num_cached_tokens

    def _preempt(self, sequence: Sequence, *, is_short: bool = True) -> None:
        """Free the blocks of a running sequence. ``is_short``: there are too few for all."""
        self._running.remove(sequence)
        self._kv.free(sequence)
        sequence.epoch += 1
        sequence.num_in_flight = 0  # the step in flight is stale: its token is sampled again
        self._admission.put_back(sequence, is_short=is_short)
        sequence.status = Status.WAITING
        sequence.history.wait()
        sequence.num_preemptions += 1
        self.num_preemptions += 1

    def check(self) -> None:
        """Assert the invariants that hold between steps."""
        assert len(self._running) <= self._max_num_seqs
        assert all(s.status is Status.RUNNING for s in self._running)
        waiting = list(self._admission)
        assert all(s.status is Status.WAITING for s in waiting)
        assert not any(len(table) for s in waiting for table in s.block_tables)
        assert all(s.num_pending_tokens > 0 or s.num_in_flight for s in self)
        assert all(not s.num_in_flight for s in self._admission)
        self._kv.check(self._running)


def _num_pending_tokens(sequence: Sequence) -> int:
    return sequence.num_pending_tokens
