"""FailureHandler: what remains usable after a failure, and when the engine gives up.

Recovery starts the bookkeeping afresh after an exception outside of a step.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from core.contract.errors import is_survivable
from core.engine.pipeline import StepRunner
from core.kv.manager import KVCacheManager
from core.scheduler import ScheduledSequence, Scheduler
from core.state.sequence import Sequence

MAX_FAILED_STEPS = 8
"""Failed steps in a row, each followed by a failed canary, after which the engine gives up."""


class FailureHandler:
    """Counts failed steps and keeps their blocks out of other sequences. Core thread only."""

    def __init__(self, runner: StepRunner, scheduler: Scheduler, kv: KVCacheManager) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._kv = kv
        self._recovery = Recovery(scheduler)
        self._num_failures_in_a_row = 0
        self.num_failed_steps = 0
        self.has_given_up = False
        """Whether an error was raised because the engine cannot continue."""

    def step_succeeded(self) -> None:
        self._num_failures_in_a_row = 0

    def step_failed(self, error: BaseException) -> None:
        """A scheduled step failed. Raises ``error`` if the device is lost."""
        self.num_failed_steps += 1
        self.launch_failed(error)

    def launch_failed(self, error: BaseException) -> None:
        """A step, or a part of one, failed. Raises ``error`` if the device is lost."""
        if is_fatal(error):
            self.has_given_up = True
            raise error
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()

    def count(self, error: BaseException) -> None:
        """Nothing of a failed step succeeded, nor a canary. Raises ``error`` the last time."""
        self._num_failures_in_a_row += 1
        if self._num_failures_in_a_row >= MAX_FAILED_STEPS:
            self.has_given_up = True
            raise error

    def restart(
        self, sequences: list[Sequence], error: BaseException, *, is_counted: bool
    ) -> dict[Sequence, tuple[BaseException, bool]]:
        """Start afresh with these sequences after ``error`` in the engine's bookkeeping.

        Returns those that end, why, and whether they are blameless: after a second failure before
        a step succeeds, all end. Raises ``error`` the last time. A failure that is not counted is
        none of these. No step may be in flight.
        """
        self.step_failed(error)
        if is_counted:
            self.count(error)
        if is_counted and self._num_failures_in_a_row > 1:
            self._recovery.restart([])
            return dict.fromkeys(sequences, (error, True))
        guilty = self._recovery.restart(sequences)
        return {sequence: (cause, False) for sequence, cause in guilty.items()}

    def distrust(self, item: ScheduledSequence) -> None:
        """Drop the blocks that ``item`` would have filled, and clear NaN that it left there."""
        block_ids = self._kv.blocks_between(item.block_tables, item.num_computed_tokens, item.end)
        self._drop(block_ids, item)
        self._clear_nan(block_ids)

    def row_is_nan(self, item: ScheduledSequence) -> None:
        """Drop and clear the blocks of ``item`` that contain NaN, also shared ones."""
        block_ids = self._kv.blocks_between(item.block_tables, 0, item.end)
        self._drop(self._clear_nan(block_ids), item)

    def _drop(self, block_ids: list[int], item: ScheduledSequence) -> None:
        """Keep blocks out of the prefix cache; others that have one of them are recomputed."""
        self._kv.drop_cached(block_ids)
        owner = None if item.is_stale else item.sequence
        self._scheduler.recompute_holders(set(block_ids), owner)

    def _clear_nan(self, block_ids: list[int]) -> list[int]:
        """Clear those of these blocks that contain NaN, and return them. Waits for the device.

        NaN in a masked slot would spread to the next owner of its block.
        """
        not_finite = self._runner.not_finite(block_ids)
        if not_finite:
            self._runner.clear(not_finite)
        return not_finite


def is_fatal(error: BaseException) -> bool:
    """Whether the device is lost: after a CUDA error every later call fails too."""
    return isinstance(error, torch.AcceleratorError) and not isinstance(
        error, torch.OutOfMemoryError
    )


class Recovery:
    """Rebuilds scheduler and block management from the live sequences. Core thread only.

    An exception in the scheduler leaves its lists and block counts in an unknown state. What a
    sequence computed can be computed again from its tokens, so nothing is lost but time and the
    prefix cache. A sequence is guilty if scheduling it alone fails.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def restart(self, sequences: Iterable[Sequence]) -> dict[Sequence, BaseException]:
        """Queue all sequences again, in this order, without their blocks.

        Returns the guilty ones, which are left out, and their errors. No step may be in flight.
        """
        live = list(sequences)
        guilty: dict[Sequence, BaseException] = {}
        if self._failure_of(live) is not None:
            for sequence in live:
                if (error := self._failure_of([sequence])) is not None:
                    guilty[sequence] = error
        self._queue([sequence for sequence in live if sequence not in guilty])
        return guilty

    def _failure_of(self, sequences: list[Sequence]) -> BaseException | None:
        """Return the error that scheduling these sequences raises, if any."""
        try:
            self._queue(sequences)
            self._scheduler.schedule()
        except BaseException as error:
            if not is_survivable(error):
                raise
            return error.with_traceback(None)
        return None

    def _queue(self, sequences: list[Sequence]) -> None:
        """Start with these sequences, none of which runs."""
        self._scheduler.restart()
        for sequence in sequences:
            sequence.restart()
            self._scheduler.add(sequence)
