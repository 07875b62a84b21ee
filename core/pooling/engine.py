"""PoolingEngine: add, abort, step for models that make one vector of each text."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import torch

from core.contract.config import EngineConfig
from core.contract.errors import is_survivable
from core.contract.messages import EngineCounters, EngineRequest, StepOutput, Work
from core.contract.params import SamplingParams
from core.engine.engine import check_ids, failed_output, failure_of
from core.engine.failures import MAX_FAILED_STEPS, is_fatal
from core.observe.step_timer import StepTimer
from core.pooling.runner import TextRunner
from core.run.limits import max_step_seconds
from core.scheduler.step_time import StepTime
from core.state.fair_queue import Entry, FairQueue, fair_entries

logger = logging.getLogger("roseinfer.core")

FIRST_TOKENS = 256
"""Tokens of the first step, before the duration of any is known. A step may have so many more than
those measured."""

DEFAULT_MAX_STEP_MS = {"cpu": 100.0, "cuda": None}
"""Expected duration of a step. Nobody waits for a next token meanwhile, so it is longer than that
of a step beside streams."""

DEFAULT_BATCHED_TOKENS = {"cpu": 4096, "cuda": 32768}

NOT_FINITE = "The model computed no numbers for this request: its vector is NaN."
_CANARY = EngineRequest(
    request_id="canary", prompt_token_ids=(0,), params=SamplingParams(max_tokens=0)
)


class PoolingEngine:
    """A ``SteppingEngine``. A step computes whole texts, padded to the longest of them.

    Tenants take turns, see ``FairQueue``. A step has as many tokens as are expected to take
    ``max_step_seconds``, but at least one text. A tenant waits for the step under way and for at
    most one text of each other tenant.

    A failed step is repeated text by text, and only those that fail alone end with an error. If
    none has succeeded before, a canary decides whether the text is to blame or the engine, which
    gives up after ``MAX_FAILED_STEPS`` failures of its own in a row. Core thread only.
    """

    def __init__(
        self,
        runner: TextRunner,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        num_token_ids: int,
        max_step_seconds: float | None = None,
    ) -> None:
        """A step has at most ``max_num_batched_tokens``, padding included, or one text.

        A prompt may have ids below ``num_token_ids``.
        """
        self.timer = StepTimer()
        self._runner = runner
        self._max_num_seqs = max_num_seqs
        self._max_num_tokens = max_num_batched_tokens
        self._step_time = None if max_step_seconds is None else StepTime(max_step_seconds)
        self._num_token_ids = num_token_ids
        self._queue: FairQueue[Entry[EngineRequest]] = fair_entries()
        self._waiting: dict[str, Entry[EngineRequest]] = {}  # those of the queue, by id
        self._failed: list[StepOutput] = []  # returned by the next step
        self._running: dict[str, EngineRequest] = {}
        self._started_at = 0.0
        self._num_steps = 0
        self._num_failed_steps = 0
        self._num_failed_in_a_row = 0
        self._num_prompt_tokens = 0
        self._num_aborts = 0

    @classmethod
    def of(
        cls, runner: TextRunner, config: EngineConfig, device: str, *, num_token_ids: int
    ) -> PoolingEngine:
        """An engine with the limits of the configuration, or with the defaults of the device."""
        return cls(
            runner,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens or DEFAULT_BATCHED_TOKENS[device],
            max_step_seconds=max_step_seconds(device, config, DEFAULT_MAX_STEP_MS),
            num_token_ids=num_token_ids,
        )

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._waiting or self._failed)

    def add(self, request: EngineRequest) -> None:
        """Queue a request, which was checked to fit. What fails here ends with an error, alone."""
        try:
            check_ids(request.prompt_token_ids, self._num_token_ids)
            entry = Entry(request, request.tenant, priority=request.priority)
            self._queue.add(entry)
            self._waiting[request.request_id] = entry
        except BaseException as error:  # noqa: BLE001 - it raises what cannot be survived
            self._failed.append(failure_of(request, error))

    def abort(self, request_id: str) -> None:
        """Drop a request; nothing more is reported about it."""
        self._failed = [output for output in self._failed if output.request_id != request_id]
        entry = self._waiting.pop(request_id, None)
        if entry is not None:
            self._queue.remove(entry)
            self._num_aborts += 1

    def step(self) -> list[StepOutput]:
        """Compute a batch. Raises only if the engine cannot continue."""
        self.timer.start()
        failed, self._failed = self._failed, []
        return [*failed, *self._compute()] if self._waiting else failed

    def work(self, request_id: str) -> Work | None:
        """Return the work done so far for a request of the step under way. Any thread."""
        running = self._running
        request = running.get(request_id)
        if request is None:
            return None
        return Work(
            started_at=self._started_at,
            until=time.perf_counter(),
            num_steps=1,
            num_rows=len(running),
            max_rows=len(running),
            num_prompt_tokens=len(request.prompt_token_ids),
        )

    def prepare(self, *, is_idle: bool) -> bool:  # noqa: ARG002 - see SteppingEngine
        """There is nothing to prepare."""
        return False

    def fail_all(self, message: str) -> list[StepOutput]:
        """End every request with an error."""
        failed, self._failed = self._failed, []
        waiting, self._waiting, self._queue = self._waiting, {}, fair_entries()
        return failed + [StepOutput(request_id=name, error=message) for name in waiting]

    def stats(self) -> EngineCounters:
        """A snapshot of the counters."""
        return EngineCounters(
            num_waiting=len(self._waiting),
            num_steps=self._num_steps,
            num_aborts=self._num_aborts,
            num_failed_steps=self._num_failed_steps,
            num_prompt_tokens=self._num_prompt_tokens,
        )

    def _compute(self) -> list[StepOutput]:
        batch = self._take()
        self._started_at = time.perf_counter()
        self._running = {request.request_id: request for request in batch}
        self.timer.lap("schedule")
        outputs = self._launch(batch)
        if isinstance(outputs, BaseException):
            outputs = self._one_by_one(batch, outputs)
        else:
            self._num_failed_in_a_row = 0
            self._observe(batch)
        self.timer.lap("forward")
        self._num_steps += 1
        num_tokens = sum(len(request.prompt_token_ids) for request in batch)
        self._num_prompt_tokens += num_tokens
        self.timer.computed(len(batch), num_tokens)
        outputs = [output.after(self.work(output.request_id)) for output in outputs]
        self._running = {}
        return outputs

    def _take(self) -> list[EngineRequest]:
        """The next batch: one request of each tenant in turn, while they fit."""
        limit = self._limit()
        batch: list[EngineRequest] = []
        longest = 0
        while self._waiting and len(batch) < self._max_num_seqs:
            request = self._queue.head.value
            longest = max(longest, len(request.prompt_token_ids))
            if batch and longest * (len(batch) + 1) > limit:
                break
            batch.append(request)
            self._queue.pop()
            del self._waiting[request.request_id]
        return batch

    def _limit(self) -> int:
        """Tokens of the next step, padding included."""
        if self._step_time is None:
            return self._max_num_tokens
        expected = self._step_time.prompt_tokens(0, FIRST_TOKENS) or FIRST_TOKENS
        return min(self._max_num_tokens, expected)

    def _observe(self, batch: Sequence[EngineRequest]) -> None:
        """Learn how long a step takes."""
        if self._step_time is not None:
            seconds = time.perf_counter() - self._started_at
            longest = max(len(request.prompt_token_ids) for request in batch)
            self._step_time.observe(longest * len(batch), 0, seconds)

    def _launch(self, batch: Sequence[EngineRequest]) -> list[StepOutput] | BaseException:
        """The outputs, or why there are none. Raises if the device is lost."""
        try:
            vectors = self._runner.run(batch)
        except BaseException as error:
            if is_fatal(error) or not is_survivable(error):
                raise
            if isinstance(error, torch.OutOfMemoryError):
                torch.cuda.empty_cache()
            return error
        return [_output(request, vector) for request, vector in zip(batch, vectors, strict=True)]

    def _one_by_one(self, batch: Sequence[EngineRequest], error: BaseException) -> list[StepOutput]:
        """Compute the texts of a failed batch alone. Raises ``error`` if the engine gives up."""
        is_batch = len(batch) > 1
        if is_batch:
            self._num_failed_steps += 1
            logger.error("a step failed; it is repeated text by text", exc_info=error)
        works: bool | None = None
        outputs: list[StepOutput] = []
        for request in batch:
            found = self._launch([request]) if is_batch else error
            if not isinstance(found, BaseException):
                works = True
                outputs += found
                continue
            self._num_failed_steps += 1
            logger.error("request %s failed", request.request_id, exc_info=found)
            if works is None:
                works = not isinstance(self._launch([_CANARY]), BaseException)
            outputs.append(failed_output(request.request_id, found, is_blameless=not works))
        self._num_failed_in_a_row = 0 if works else self._num_failed_in_a_row + 1
        if self._num_failed_in_a_row >= MAX_FAILED_STEPS:
            raise error
        return outputs


def _output(request: EngineRequest, vector: torch.Tensor) -> StepOutput:
    if not bool(torch.isfinite(vector).all()):
        return StepOutput(request_id=request.request_id, error=NOT_FINITE)
    return StepOutput(
        request_id=request.request_id,
        vector=vector.numpy().astype("<f4", copy=False).tobytes(),
        num_prompt_tokens=len(request.prompt_token_ids),
        finish_reason="stop",
    )
