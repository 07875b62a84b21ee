"""Recovery: starts the engine's bookkeeping afresh after an exception outside of a step."""

from __future__ import annotations

from collections.abc import Iterable

from core.contract.errors import is_survivable
from core.scheduler import Scheduler
from core.state.sequence import Sequence


class Recovery:
    """Rebuilds scheduler and block management from the live sequences. Core thread only.

    An exception in the scheduler leaves its lists and block counts in an unknown state. What a
    sequence computed can be computed again from its tokens, so nothing is lost but time and the
    prefix cache. A sequence is guilty if scheduling it alone fails.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def restart(self, sequences: Iterable[Sequence]) -> dict[Sequence, BaseException]:
        """Take all sequences back to the waiting line, in this order, without their blocks.

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
        """What scheduling these sequences raises."""
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
