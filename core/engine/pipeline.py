"""StepPipeline: launches steps and collects their results, at most one launch later.

It stands between the engine, which schedules and commits, and the runner, which computes. A step
that fails comes back as one that is collected, with its error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass, replace
from typing import Protocol

from core.contract.errors import is_survivable
from core.observe.step_timer import StepTimer
from core.sampling.result import SequenceResult
from core.scheduler import ScheduledSequence, SchedulerOutput

logger = logging.getLogger("roseinfer.core")


class InFlight(Protocol):
    """A step that was launched."""

    @property
    def must_land(self) -> bool:
        """Whether the host needs its tokens before it launches the next step."""

    def collect(self) -> list[SequenceResult]:
        """Wait for the step; result ``i`` belongs to sequence ``i`` of the step. Once only."""


class StepRunner(Protocol):
    """Computes steps."""

    def launch(self, scheduler_output: SchedulerOutput) -> InFlight:
        """Launch the step on the device, after those launched before.

        A token in flight at the launch is that of the previous launch.
        """

    def clear(self, block_ids: ReadOnly[int]) -> None:
        """Overwrite blocks that no sequence needs, by the KVCacheManager's numbers."""

    def not_finite(self, block_ids: ReadOnly[int]) -> list[int]:
        """Return the blocks among these that contain NaN or infinity. Waits for the device."""


class Prefaulter(Protocol):
    """Takes memory for the KV cache before a step needs it."""

    def advance(self, *, is_idle: bool, had_prompts: bool) -> bool:
        """Take a little, if needed: early if idle, late after a step with prompts.

        Returns whether it did.
        """


@dataclass(frozen=True, slots=True)
class CollectedStep:
    """A step that is over: a result for each sequence, or the error that the step failed with.

    A void step was launched after one that failed and may have read blocks that were not written:
    it has no results, and its own error says nothing. A sequence is blameless if the engine could
    not compute anything else either.
    """

    scheduled: list[ScheduledSequence]
    results: list[SequenceResult]
    error: BaseException | None = None
    is_void: bool = False
    is_blameless: bool = False


class StepPipeline:
    """Launches each step and collects it, at once or after the launch of the next one.

    The latter is async scheduling: the device does not wait for the host between two steps. A
    step whose tokens decide the next one (``must_land``) is always collected at once. A failure,
    of a launch too, is reported when the step is collected. Core thread only.
    """

    def __init__(self, runner: StepRunner, timer: StepTimer, *, async_scheduling: bool) -> None:
        self._runner = runner
        self._timer = timer
        self._async_scheduling = async_scheduling
        self._launched: _LaunchedStep | None = None  # only between steps

    @property
    def in_flight(self) -> list[ScheduledSequence]:
        """Sequences of the step in flight; none without async scheduling."""
        return [] if self._launched is None else self._launched.scheduled

    def run(self, scheduler_output: SchedulerOutput) -> Iterator[CollectedStep]:
        """Launch a step, if it computes anything, and yield the steps to commit."""
        previous, self._launched = self._launched, None
        scheduled = scheduler_output.scheduled
        assert scheduled or previous, "there is work left, but nothing can be scheduled"
        launched = self._launch(scheduler_output) if scheduled else None
        has_failed = False
        if previous is not None:
            collected = self._collect(previous)
            has_failed = collected.error is not None
            yield collected
        if launched is None:
            return
        if has_failed:
            collected = self._collect(launched)
            yield replace(collected, results=[], is_void=True)
        elif self._async_scheduling and not launched.step.must_land:
            self._launched = launched
        else:
            yield self._collect(launched)

    def run_now(self, scheduled: list[ScheduledSequence]) -> CollectedStep:
        """Launch and collect a step. There must be none in flight."""
        assert self._launched is None
        return self._collect(self._launch(SchedulerOutput(scheduled)))

    def discard(self) -> None:
        """Drop the step in flight."""
        self._launched = None

    def _launch(self, scheduler_output: SchedulerOutput) -> _LaunchedStep:
        step: InFlight
        try:
            step = self._runner.launch(scheduler_output)
        except BaseException as error:
            if not is_survivable(error):
                raise
            step = _FailedLaunch(error)  # it is logged when the step is collected
        for item in scheduler_output.scheduled:
            item.launch()
        return _LaunchedStep(scheduler_output.scheduled, step)

    def _collect(self, launched: _LaunchedStep) -> CollectedStep:
        try:
            results = launched.step.collect()
        except BaseException as error:
            if not is_survivable(error):
                raise
            logger.exception("a step of %d sequences failed", len(launched.scheduled))
            # without its traceback, which would keep the step's tensors alive
            return CollectedStep(launched.scheduled, [], error.with_traceback(None))
        finally:
            self._timer.lap("results")
        return CollectedStep(launched.scheduled, results)


@dataclass(frozen=True, slots=True)
class _LaunchedStep:
    scheduled: list[ScheduledSequence]
    step: InFlight


class _FailedLaunch:
    """A step whose launch failed."""

    must_land = True

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def collect(self) -> list[SequenceResult]:
        """Raise the error of the launch."""
        raise self._error
