"""Engine: add, abort, step. It composes scheduler, pipeline and text.

A request (``EngineRequest``) becomes a ``Sequence``. A step asks the scheduler what to compute,
lets the pipeline compute it, commits the results, and returns the ``StepOutput`` of each request.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from core.contract.errors import InvalidRequest, is_survivable
from core.contract.messages import EngineCounters, EngineRequest, StepOutput, Work
from core.engine.failures import FailureHandler
from core.engine.generation import Generation, TokenCounter
from core.engine.pipeline import CollectedStep, Prefaulter, StepPipeline, StepRunner
from core.engine.retry import StepRetry
from core.kv.manager import KVCacheManager
from core.observe.step_timer import StepTimer
from core.sampling.result import RowFailure, SequenceResult
from core.scheduler import ScheduledSequence, Scheduler, SchedulerOutput
from core.state.sequence import Sequence
from core.text.tokenizer import Tokenizer

logger = logging.getLogger("roseinfer.core")

LOGITS_NOT_FINITE = "The model computed no numbers for this request: its logits are NaN."
ENGINE_FAILED = "The engine failed; this request was not the cause and may be sent again."
NOTHING_ALLOWED = "The grammar and the other limits of this request allow no further token."


def check_ids(token_ids: tuple[int, ...], num_token_ids: int) -> None:
    """Check a prompt: a model computes nothing of no tokens, or of ids that it does not have.

    Raises InvalidRequest.
    """
    if not token_ids:
        raise InvalidRequest("The prompt is empty: it has no tokens.")
    for token_id in (min(token_ids), max(token_ids)):
        if not 0 <= token_id < num_token_ids:
            raise InvalidRequest(
                f"The prompt has token id {token_id}, but the model has no such token."
            )


def failed_with(error: BaseException) -> str:
    """Return the client's message for an internal failure; the log has the details."""
    return f"The server failed on this request: {type(error).__name__}."


class Engine:
    """The step machine. Core thread only.

    A failed step is repeated in halves, and only the requests that make it fail end with an error;
    ``step`` raises only if the engine cannot continue. With ``async_scheduling`` the end of a
    sequence is seen one step late, and what was computed for it meanwhile is discarded.
    """

    def __init__(
        self,
        runner: StepRunner,
        scheduler: Scheduler,
        kv: KVCacheManager,
        tokenizer: Tokenizer,
        *,
        num_token_ids: int,
        eos_token_ids: frozenset[int],
        seed: int | None = None,
        async_scheduling: bool = False,
        timer: StepTimer | None = None,
        memory_ahead: Prefaulter | None = None,
    ) -> None:
        """A prompt may have ids below ``num_token_ids``: others would be read beyond the embedding.

        ``memory_ahead`` takes memory for the KV cache between steps.

        ``seed`` makes the seeds drawn for requests without one repeatable as a sequence.
        """
        # a failed step is repeated after the next one has released what only it still needed
        assert not (async_scheduling and kv.num_groups > 1)
        self.timer = timer or StepTimer()
        self._memory_ahead = memory_ahead
        self._scheduler = scheduler
        self._kv = kv
        self._tokenizer = tokenizer
        self._num_token_ids = num_token_ids
        self._eos_token_ids = eos_token_ids
        self._seeds = random.Random(seed)
        self._pipeline = StepPipeline(runner, self.timer, async_scheduling=async_scheduling)
        self._failures = FailureHandler(runner, scheduler, kv)
        self._retry = StepRetry(self._pipeline, self._failures, kv)
        self._tokens = TokenCounter(self.timer.histograms.inter_token)
        self._generations: dict[str, Generation] = {}
        self._ready: list[StepOutput] = []  # returned by the next step
        self._on_schedule: Callable[[SchedulerOutput], None] | None = None
        self._num_steps = self._num_aborts = 0
        self._had_prompts = False  # the last step

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._generations or self._ready or self._pipeline.in_flight)

    def observe(self, on_schedule: Callable[[SchedulerOutput], None] | None) -> None:
        """Call ``on_schedule`` with each step before its launch, in place of any other."""
        self._on_schedule = on_schedule

    def add(self, request: EngineRequest) -> None:
        """Queue a request, which was checked to fit. What fails here ends with an error, alone."""
        try:
            generation, output = self._begin(request)
        except BaseException as error:  # noqa: BLE001 - it raises what cannot be survived
            output = failure_of(request, error)
        if output is not None:  # there is nothing to generate
            self._ready.append(output)
            return
        self._generations[request.request_id] = generation
        try:
            self._scheduler.add(generation.sequence)
        except BaseException as error:  # noqa: BLE001 - it raises what cannot be survived
            self._recover(error, is_counted=False)

    def abort(self, request_id: str) -> None:
        """Drop a request and free its blocks; nothing more is reported about it."""
        generation = self._generations.get(request_id)
        if generation is not None:
            self._num_aborts += 1
            try:
                self._finish(generation)
            except BaseException as error:  # noqa: BLE001 - as in ``add``
                self._recover(error, is_counted=False)
        elif self._ready:
            self._ready = [output for output in self._ready if output.request_id != request_id]

    def work(self, request_id: str) -> Work | None:
        """Return the work done so far for a request that has not ended. Any thread."""
        generation = self._generations.get(request_id)
        return None if generation is None else generation.sequence.work()

    def step(self) -> list[StepOutput]:
        """Schedule, launch, collect, commit. Raises only if the engine cannot continue."""
        self.timer.start()
        try:
            if self._generations or self._pipeline.in_flight:
                for step in self._retry.run(self._pipeline.run(self._schedule())):
                    self._commit(step)
        except BaseException as error:  # noqa: BLE001 - it raises what cannot be survived
            self._recover(error)
        ready, self._ready = self._ready, []
        return ready

    def prepare(self, *, is_idle: bool) -> bool:
        """Take a little memory for the KV cache. Returns whether it did."""
        return self._memory_ahead is not None and self._memory_ahead.advance(
            is_idle=is_idle, had_prompts=self._had_prompts
        )

    def fail_all(self, message: str) -> list[StepOutput]:
        """End every request with an error."""
        self._pipeline.discard()
        for name, generation in list(self._generations.items()):
            self._fail(generation, StepOutput(request_id=name, error=message))
        ready, self._ready = self._ready, []
        return ready

    def stats(self) -> EngineCounters:
        """A snapshot of the counters."""
        return EngineCounters(
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_free_blocks=self._kv.num_free_blocks,
            num_blocks=self._kv.num_blocks,
            num_steps=self._num_steps,
            num_preemptions=self._scheduler.num_preemptions,
            num_aborts=self._num_aborts,
            num_failed_steps=self._failures.num_failed_steps,
            num_prompt_tokens=self._tokens.num_prompt_tokens,
            num_cached_tokens=self._tokens.num_cached_tokens,
            num_output_tokens=self._tokens.num_output_tokens,
        )

    def check(self) -> None:
        """Assert the invariants that hold between steps."""
        self._scheduler.check()
        assert {s.request_id for s in self._scheduler} == self._generations.keys()
        items = self._pipeline.in_flight
        in_flight = {item.sequence for item in items if item.samples and not item.is_stale}
        assert {s for s in self._scheduler if s.num_in_flight} == in_flight
        assert all(s.num_in_flight == 1 for s in in_flight)

    def _begin(self, request: EngineRequest) -> tuple[Generation, StepOutput | None]:
        """The generation of a new request, and its last output if there is nothing to generate.

        Raises InvalidRequest, and ValueError if the engine has a request of this id.
        """
        if request.request_id in self._generations:
            raise ValueError(f"two requests with the id {request.request_id}")
        check_ids(request.prompt_token_ids, self._num_token_ids)
        seed = request.params.seed
        sequence = Sequence(
            request,
            seed=self._seeds.getrandbits(63) if seed is None else seed,
            num_groups=self._kv.num_groups,
        )
        generation = Generation(sequence, self._tokenizer)
        return generation, generation.report()

    def _schedule(self) -> SchedulerOutput:
        scheduler_output = self._scheduler.schedule()
        if self._on_schedule is not None:
            self._on_schedule(scheduler_output)
        self.timer.lap("schedule")
        return scheduler_output

    def _commit(self, step: CollectedStep) -> None:
        """Move the sequences of a step on, or end the guilty one."""
        num_tokens = sum(item.num_tokens for item in step.scheduled)
        self._had_prompts = num_tokens > len(step.scheduled)
        if step.error is None:
            self._num_steps += 1
            self.timer.computed(len(step.scheduled), num_tokens)
            self._tokens.begin(self.timer.now)
            self._advance(step)
            self._tokens.end()
        else:
            [item] = step.scheduled
            self._failures.distrust(item)
            request_id = item.sequence.request_id
            output = failed_output(request_id, step.error, is_blameless=step.is_blameless)
            self._fail(self._generations[request_id], output)
        self.timer.lap("commit")
        num_pairs = 0.0
        if self._had_prompts:
            num_pairs = sum(item.num_pairs for item in step.scheduled if item.num_tokens > 1)
        seconds = self.timer.step_seconds
        self._scheduler.observe(num_tokens, len(step.scheduled), seconds, num_pairs)

    def _advance(self, step: CollectedStep) -> None:
        """Append what a step sampled, and gather the outputs."""
        for item, result in zip(step.scheduled, step.results, strict=True):
            failure = None if result.sampled is None else result.sampled.failure
            if failure is RowFailure.NAN:
                self._failures.row_is_nan(item)
            if item.is_stale:
                continue
            item.land()
            sequence = item.sequence
            generation = self._generations[sequence.request_id]
            if failure is RowFailure.NAN:
                error = StepOutput(request_id=sequence.request_id, error=LOGITS_NOT_FINITE)
                self._fail(generation, error)
            elif failure is None:
                self._append(generation, item, result)
            elif sequence.awaits_mask:
                sequence.num_computed_tokens -= 1  # the next step computes its last token again
                self._append(generation, item, SequenceResult(None, result.prompt_logprobs))
            else:
                message = sequence.failure or NOTHING_ALLOWED
                self._fail(generation, _invalid(sequence.request_id, message))

    def _append(
        self, generation: Generation, item: ScheduledSequence, result: SequenceResult
    ) -> None:
        """Append the result of one sequence, and end it if that was its last token."""
        sequence = item.sequence
        num_before = len(sequence.token_ids)
        try:
            generation.advance(result, self._eos_token_ids, num_computed_tokens=item.end)
            output = generation.report()
        except BaseException as error:  # the text of one request must not end the others
            if not is_survivable(error):
                raise
            logger.exception("request %s failed", sequence.request_id)
            self._fail(generation, failed_output(sequence.request_id, error))
            return
        if num_new := len(sequence.token_ids) - num_before:
            self._tokens.got_tokens(sequence, num_new)
        if output is not None:
            self._ready.append(output)
        if generation.finish_reason is not None:
            if sequence.last_token_at is None:
                self._tokens.prompt_computed(sequence)
            self._finish(generation)

    def _recover(self, error: BaseException, *, is_counted: bool = True) -> None:
        """Start afresh after an exception that no step and no request is known to have caused.

        A second one before a step succeeds ends every request. After several, ``error`` is raised.
        With ``is_counted`` false neither happens: clients decide how many requests come and go.
        """
        if self._failures.has_given_up or not is_survivable(error):
            raise error
        logger.error("the bookkeeping failed; every request starts again", exc_info=error)
        self._pipeline.discard()
        live = [generation.sequence for generation in self._generations.values()]
        guilty = self._failures.restart(live, error, is_counted=is_counted)
        for sequence, (cause, is_blameless) in guilty.items():
            del self._generations[sequence.request_id]
            output = failed_output(sequence.request_id, cause, is_blameless=is_blameless)
            self._ready.append(output.after(sequence.work()))

    def _fail(self, generation: Generation, output: StepOutput) -> None:
        """End a request with an error."""
        # first: it must not be lost if its end fails
        self._ready.append(output.after(generation.sequence.work()))
        self._finish(generation)

    def _finish(self, generation: Generation) -> None:
        """Drop a request that ended in any way."""
        sequence = generation.sequence
        del self._generations[sequence.request_id]
        self._scheduler.finish(sequence)


def failure_of(request: EngineRequest, error: BaseException) -> StepOutput:
    """Return the last output of a request that cannot begin. Raises what cannot be survived."""
    if not is_survivable(error):
        raise error
    if isinstance(error, InvalidRequest):
        return _invalid(request.request_id, error.message)
    logger.error("request %s failed", request.request_id, exc_info=error)
    return failed_output(request.request_id, error)


def failed_output(
    request_id: str, error: BaseException, *, is_blameless: bool = False
) -> StepOutput:
    """Return the last output of a request that failed in the engine; the log has the details."""
    message = ENGINE_FAILED if is_blameless else failed_with(error)
    return StepOutput(request_id=request_id, error=message, is_retryable=is_blameless)


def _invalid(request_id: str, message: str) -> StepOutput:
    """The last output of a request that fails through its own fault."""
    return StepOutput(request_id=request_id, error=message, is_invalid=True)
