"""Replica: one server of the fleet. It steps as ``core.scheduler`` does, on a simulated clock.

Steps of the same streams without prompts are one event, however many they are: their duration has a
closed form. A request that arrives in the middle of them ends the run after the step in progress.

Differences to the engine: a request is admitted when all its blocks are there, those of its answer
included, so none is preempted, and none passes another that does not fit. All requests are of one
tenant.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from heapq import heappop, heappush

from benchmarks.fleet.machine import Machine
from benchmarks.fleet.prefix_cache import PrefixCache
from benchmarks.fleet.request import Request
from benchmarks.fleet.step_times import StepTimes, pairs_of
from core.scheduler.output import PromptRows
from core.scheduler.step_time import AIM, StepTime, whole_blocks

_TOKENS = PromptRows()
"""Every token counts the same: without streams no duration limits a step."""

_MAX_OBSERVED = 8
"""Steps of a run that the chunk policy learns from: each halves the weight of those before."""


class Replica:
    """``due`` is when ``advance`` has to be called, None while it is idle."""

    def __init__(self, machine: Machine, times: StepTimes) -> None:
        self.cache = PrefixCache(machine.num_blocks, machine.block_size)
        self.due: float | None = None
        self.busy_seconds = 0.0
        self.num_steps = 0
        self.num_prompt_tokens = 0
        """Tokens of prompts that were computed."""
        self.num_sampled = 0
        self._machine = machine
        self._times = times
        seconds = machine.max_step_ms
        self._policy = None if seconds is None else StepTime(AIM * seconds / 1e3)
        keys_per_row = machine.keys_per_row if seconds is not None else None
        self._rows = PromptRows(keys_per_row or math.inf)
        self._waiting: deque[Request] = deque()
        self._prefills: list[Request] = []  # in order of admission
        self._streams: list[tuple[int, int, Request]] = []  # heap: step of its end, tie, request
        self._context = 0  # tokens that the streams attend to in the next step
        self._kinds: Counter[int] = Counter()  # of the streams
        self._num_started = 0
        self._start = 0.0
        self._steps_due = 0  # of a run; 1 for a step with prompts, 0 in between
        self._chunks: list[tuple[Request, int]] = []  # of the step in progress

    @property
    def num_running(self) -> int:
        return len(self._streams) + len(self._prefills)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def arrive(self, request: Request, now: float) -> None:
        """Take a request. Raises ValueError if it can never run.

        What arrives at the same time, before ``advance`` is called, joins the same step.
        """
        if request.num_kept > self.cache.num_blocks * self.cache.block_size:
            raise ValueError(f"a request of {request.num_kept} tokens does not fit the cache")
        self._waiting.append(request)
        if self.due is None:
            self._pause(now)
        elif self._steps_due > 1 and len(self._waiting) == 1 and self._may_start(request):
            num_streams = len(self._streams)
            args = self._steps_due, num_streams, self._context
            self._steps_due = self._times.steps_in(now - self._start, *args)
            run = self._times.of_run(self._steps_due, num_streams, self._context)
            self.due = max(now, self._start + run)

    def advance(self) -> list[Request]:
        """Finish what was due and plan the next step. Returns the requests that have ended."""
        assert self.due is not None
        now = self.due
        num_steps, num_streams = self._steps_due, len(self._streams)
        self._observe(now)
        self.num_steps += num_steps
        self.busy_seconds += now - self._start
        self._context += num_streams * num_steps
        self.num_sampled += num_streams * num_steps
        ended = []
        streams = self._streams
        while streams and streams[0][0] <= self.num_steps:
            request = heappop(streams)[2]
            self._leave(request)
            ended.append(request)
        for request, end in self._chunks:
            self.num_prompt_tokens += end - request.num_computed
            request.num_computed = end
            if end == request.num_prompt:
                self._prefills.remove(request)
                request.first_token = now
                self.num_sampled += 1
                if request.num_output == 1:
                    ended.append(request)
                else:
                    last = self.num_steps + request.num_output - 1
                    heappush(streams, (last, self._num_started, request))
                    self._num_started += 1
                    self._enter(request)
        for request in ended:
            request.end = now
            self.cache.finish(request)
        if ended:
            self._pause(now)
        else:
            self._plan(now)
        return ended

    def _pause(self, now: float) -> None:
        """Let others arrive at this moment before the next step is planned."""
        self.due = self._start = now
        self._steps_due = 0
        self._chunks = []

    def _plan(self, now: float) -> None:
        self._admit()
        self._start = now
        num_streams = len(self._streams)
        self._chunks = self._schedule_prompts() if self._prefills else []
        if self._chunks:
            num_tokens = sum(end - request.num_computed for request, end in self._chunks)
            pairs = sum(pairs_of(request.num_computed, end) for request, end in self._chunks)
            self._steps_due = 1
            seconds = self._times.of_step(num_streams, num_tokens, self._context, pairs)
            self.due = now + seconds
        elif num_streams:
            self._steps_due = 1 if self._prefills else self._streams[0][0] - self.num_steps
            self.due = now + self._times.of_run(self._steps_due, num_streams, self._context)
        else:
            self.due = None

    def _may_start(self, request: Request) -> bool:
        return self.num_running < self._machine.max_num_seqs and self.cache.fits(request)

    def _admit(self) -> None:
        while self._waiting and self._may_start(self._waiting[0]):
            request = self._waiting.popleft()
            self.cache.start(request)
            self._prefills.append(request)

    def _schedule_prompts(self) -> list[tuple[Request, int]]:
        """Chunks of the next step, each with its end: see ``Scheduler`` of core for the policy."""
        for request in self._prefills:
            self.cache.reuse(request)
        chunks = [(r, r.num_prompt) for r in self._prefills if r.num_pending == 1]
        prefills = [request for request in self._prefills if request.num_pending > 1]
        if not prefills:
            return chunks
        num_streams, size = len(self._streams) + len(chunks), self._machine.block_size
        rows = self._rows if num_streams else _TOKENS
        budget = self._budget(num_streams, prefills, rows)
        if not budget:
            return chunks
        oldest = prefills[0]
        budget = min(budget, sum(_rows_of(request, rows) for request in prefills))
        reserved = min(-(-budget // 2), _rows_of(oldest, rows))
        for request in sorted(prefills, key=_num_pending):  # stable: equal ones by age
            if request is oldest:
                reserved = 0
            else:
                fitting = rows.fitting(request.num_computed, budget - reserved)
                if fitting < min(size, request.num_pending):
                    continue
            self.cache.reuse(request)  # also what earlier chunks of this step compute
            start = request.num_computed
            most = max(1, min(2, budget - reserved), rows.fitting(start, budget - reserved))
            num_tokens = min(most, request.num_pending)
            end = start + num_tokens
            if len(prefills) > 1 and size <= num_tokens < request.num_pending:
                end -= end % size
            self.cache.computed(request, end)
            chunks.append((request, end))
            budget -= rows.of(start, end - start)
        return chunks

    def _budget(self, num_streams: int, prefills: list[Request], rows: PromptRows) -> int:
        """Rows of these prompts in the next step, beside sequences that compute one token."""
        machine = self._machine
        budget = machine.max_num_batched_tokens - num_streams
        if not num_streams:
            return budget
        if machine.prefill_chunk_size is not None:
            budget = min(budget, machine.prefill_chunk_size)
        if self._policy is None:
            return budget
        limit = self._policy.prompt_tokens(num_streams, machine.block_size)
        if limit is None:
            return budget
        if len(prefills) > 1:
            start = prefills[0].num_computed
            num_tokens = whole_blocks(rows.fitting(start, limit), machine.block_size)
            limit = max(limit, rows.of(start, num_tokens))
        num_pending = sum(_rows_of(request, rows) for request in prefills) if limit < budget else 0
        if self._policy.must_measure(num_streams, num_pending / limit):
            return 0
        return min(budget, limit)

    def _enter(self, request: Request) -> None:
        kind = request.conversation.kind
        self._context += request.num_prompt + 1
        if self._machine.reads_shared_once and self._kinds[kind]:
            self._context -= request.conversation.num_shared
        self._kinds[kind] += 1

    def _leave(self, request: Request) -> None:
        kind = request.conversation.kind
        self._kinds[kind] -= 1
        self._context -= request.num_prompt + request.num_output
        if self._machine.reads_shared_once and self._kinds[kind]:
            self._context += request.conversation.num_shared

    def _observe(self, now: float) -> None:
        if self._policy is None or not self._steps_due:
            return
        num_streams = len(self._streams)
        num_tokens = num_streams + sum(end - request.num_computed for request, end in self._chunks)
        num_sequences = num_streams + len(self._chunks)
        seconds = (now - self._start) / self._steps_due
        attention = sum(
            self._rows.of_pairs((end - request.num_computed) * (request.num_computed + end) / 2)
            for request, end in self._chunks
            if end - request.num_computed > 1
        )
        for _ in range(min(self._steps_due, _MAX_OBSERVED)):
            self._policy.observe(num_tokens, num_sequences, seconds, attention)


def _rows_of(request: Request, rows: PromptRows) -> int:
    return rows.of(request.num_computed, request.num_pending)


def _num_pending(request: Request) -> int:
    return request.num_pending
