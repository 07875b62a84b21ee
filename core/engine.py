"""Engine: add, abort, step. It composes scheduler, runner and text; it holds no policy."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from typing import Protocol

import torch

from core.contract.messages import EngineRequest, EngineStats, StepOutput
from core.generation import Generation
from core.kv.manager import KVCacheManager
from core.sampling.result import SequenceResult
from core.scheduler import Scheduler, SchedulerOutput
from core.sequence import Sequence
from core.text.tokenizer import Tokenizer

logger = logging.getLogger("roseinfer.core")

MAX_FAILED_STEPS = 8
"""Steps that may fail in a row before the engine is given up."""

REQUEST_FAILED = "The server failed on this request."
"""All that a client is told of a failure of ours; the log has the rest."""


class InFlight(Protocol):
    """A step that the device was told to compute."""

    @property
    def must_land(self) -> bool:
        """Whether its tokens must be known to the host before the next step is launched."""

    def collect(self) -> list[SequenceResult]:
        """Wait for the step; result ``i`` belongs to ``plan.scheduled[i]``. Once only."""


class Runner(Protocol):
    """Turns a plan into tokens."""

    def launch(self, plan: SchedulerOutput) -> InFlight:
        """Tell the device to compute the step, behind those that were launched before.

        A token that is in flight when the step is launched is that of the launch before.
        """

    def clear(self, block_ids: Ids[int]) -> None:
        """Overwrite blocks that nobody holds."""


class Engine:
    """The pure step machine. Core thread only.

    A step that fails ends the requests that were in it, with an error, and the engine goes on;
    ``step`` raises only when it cannot.

    With ``async_scheduling`` a step is launched before the tokens of the last one are collected,
    so that the device does not wait for the host. The end of a sequence is then seen one step
    late, and what was computed for it meanwhile is discarded.
    """

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        kv: KVCacheManager,
        tokenizer: Tokenizer,
        *,
        eos_token_ids: frozenset[int],
        seed: int | None = None,
        async_scheduling: bool = False,
    ) -> None:
        """``seed`` makes the seeds drawn for requests without one repeatable as a sequence."""
        self._runner = runner
        self._scheduler = scheduler
        self._kv = kv
        self._tokenizer = tokenizer
        self._eos_token_ids = eos_token_ids
        self._seeds = random.Random(seed)
        self._generations: dict[str, Generation] = {}
        self._async_scheduling = async_scheduling
        self._flight: _Flight | None = None  # only between steps, and only if they run ahead
        self._ready: list[StepOutput] = []  # outputs that are still to be told
        self._num_failures_in_a_row = 0
        self._counters = {
            "num_steps": 0,
            "num_failed_steps": 0,
            "num_prompt_tokens": 0,
            "num_cached_tokens": 0,
            "num_output_tokens": 0,
        }

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._generations or self._ready or self._flight)

    def add(self, request: EngineRequest) -> None:
        """Queue a request, which has been checked to fit. Its id must be new."""
        assert request.request_id not in self._generations
        assert request.prompt_token_ids
        seed = request.params.seed
        sequence = Sequence(request, seed=self._seeds.getrandbits(63) if seed is None else seed)
        try:
            generation = Generation(sequence, self._tokenizer)
            output = generation.report()
        except Exception:  # the prompt of one request must not end the others
            logger.exception("request %s failed", request.request_id)
            output = StepOutput(request_id=request.request_id, error=REQUEST_FAILED)
        if output is not None:  # there is nothing to generate
            self._ready.append(output)
            return
        self._generations[request.request_id] = generation
        self._scheduler.add(sequence)

    def abort(self, request_id: str) -> None:
        """Forget a request and free its blocks; nothing more is reported about it."""
        generation = self._generations.get(request_id)
        if generation is not None:
            self._forget(generation)
        elif self._ready:
            self._ready = [output for output in self._ready if output.request_id != request_id]

    def step(self) -> list[StepOutput]:
        """Schedule, launch, commit. Raises only if the engine cannot go on."""
        if self._generations or self._flight is not None:
            self._step()
        ready, self._ready = self._ready, []
        return ready

    def _step(self) -> None:
        before, self._flight = self._flight, None
        plan = self._scheduler.schedule()
        assert plan.scheduled or before, "work is left, but nothing can be scheduled"
        launched = self._launch(plan) if plan.scheduled else None
        if before is not None:
            self._land(before)
        if launched is not None:
            if self._async_scheduling and not launched.step.must_land:
                self._flight = launched
            else:
                self._land(launched)

    def _launch(self, plan: SchedulerOutput) -> _Flight:
        """Begin a step. If that fails, it is told when the step lands."""
        try:
            step = self._runner.launch(plan)
        except Exception as error:  # noqa: BLE001 - it is logged when the step lands
            step = _NotLaunched(error)
        for item in plan.scheduled:
            item.launch()
        return _Flight(plan, step)

    def _land(self, flight: _Flight) -> None:
        """Wait for a step, and commit it or end its requests."""
        failure: Exception | None = None
        try:
            results = flight.step.collect()
        except Exception as error:  # whatever goes wrong, only this step's requests are lost
            logger.exception("a step of %d sequences failed", len(flight.plan.scheduled))
            failure = error.with_traceback(None)  # which would keep the step's tensors alive
        if failure is not None:
            self._fail_step(flight.plan, failure)
        else:
            self._num_failures_in_a_row = 0
            self._commit(flight.plan, results)

    def fail_all(self, message: str) -> list[StepOutput]:
        """End every request with an error."""
        ready, self._ready, self._flight = self._ready, [], None
        live = list(self._generations.values())
        return ready + [self._fail(generation, message) for generation in live]

    def stats(self) -> EngineStats:
        """A snapshot of the counters."""
        return EngineStats(
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_free_blocks=self._kv.num_free_blocks,
            num_blocks=self._kv.num_blocks,
            num_preemptions=self._scheduler.num_preemptions,
            **self._counters,
        )

    def check(self) -> None:
        """Assert the invariants that hold between steps."""
        self._scheduler.check()
        assert {s.request_id for s in self._scheduler} == self._generations.keys()
        items = [] if self._flight is None else self._flight.plan.scheduled
        in_flight = {item.sequence for item in items if item.samples and not item.is_stale}
        assert {s for s in self._scheduler if s.num_in_flight} == in_flight
        assert all(s.num_in_flight == 1 for s in in_flight)

    def _commit(self, plan: SchedulerOutput, results: list[SequenceResult]) -> None:
        """Move every sequence on, and collect what there is to tell."""
        self._counters["num_steps"] += 1
        for item, result in zip(plan.scheduled, results, strict=True):
            failed = result.sampled is not None and result.sampled.failed
            if item.is_stale:
                if failed:
                    self._clear_all_free()
                continue
            item.land()
            sequence = item.sequence
            generation = self._generations[sequence.request_id]
            if failed:
                suspects = self._kv.distrust(sequence)
                self._ready.append(self._fail(generation, "The model computed no usable token."))
                self._runner.clear(self._kv.free_among(suspects))
                continue
            try:
                generation.advance(result, self._eos_token_ids, num_computed_tokens=item.end)
                output = generation.report()
            except Exception:  # the text of one request must not end the others
                logger.exception("request %s failed", sequence.request_id)
                self._ready.append(self._fail(generation, REQUEST_FAILED))
                continue
            if output is not None:
                self._ready.append(output)
            if generation.finish_reason is not None:
                self._forget(generation)

    def _clear_all_free(self) -> None:
        """No usable token, and no telling any more which blocks were written."""
        self._kv.invalidate()
        self._runner.clear(self._kv.free_among(range(self._kv.num_blocks)))

    def _fail_step(self, plan: SchedulerOutput, error: Exception) -> None:
        """End the requests of a failed step; raise if the failure will not stay the only one."""
        self._counters["num_failed_steps"] += 1
        self._num_failures_in_a_row += 1
        if _is_fatal(error) or self._num_failures_in_a_row >= MAX_FAILED_STEPS:
            raise error
        self._kv.invalidate()
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()
        for item in plan.scheduled:
            if not item.is_stale:
                generation = self._generations[item.sequence.request_id]
                self._ready.append(self._fail(generation, REQUEST_FAILED))

    def _fail(self, generation: Generation, message: str) -> StepOutput:
        self._forget(generation)
        return StepOutput(request_id=generation.sequence.request_id, error=message)

    def _forget(self, generation: Generation) -> None:
        """However a request ended, what it took is counted."""
        sequence = generation.sequence
        self._counters["num_prompt_tokens"] += sequence.num_prompt_tokens
        self._counters["num_cached_tokens"] += sequence.num_cached_tokens
        self._counters["num_output_tokens"] += sequence.num_output_tokens
        self._scheduler.finish(sequence)
        del self._generations[sequence.request_id]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step that was launched, and what was to be computed in it."""

    plan: SchedulerOutput
    step: InFlight


class _NotLaunched:
    """A step that failed before the device was told all of it."""

    must_land = True

    def __init__(self, error: Exception) -> None:
        self._error = error

    def collect(self) -> list[SequenceResult]:
        """Say why."""
        raise self._error


def _is_fatal(error: Exception) -> bool:
    """Whether the device is lost: after a CUDA error every later call fails too."""
    return isinstance(error, torch.AcceleratorError) and not isinstance(
        error, torch.OutOfMemoryError
    )
