"""ScheduleTimes: when each request was first scheduled."""

from __future__ import annotations

import time

from core.scheduler import SchedulerOutput


class ScheduleTimes:
    """First-scheduled times in ``time.perf_counter()`` seconds.

    ``on_schedule`` observes an engine on its core thread; any thread may ``take``.
    """

    def __init__(self) -> None:
        self._times: dict[str, float] = {}

    def on_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Note the requests that were not scheduled before."""
        now = time.perf_counter()
        for item in scheduler_output.scheduled:
            if item.sequence.num_output_tokens == 0:
                self._times.setdefault(item.sequence.request_id, now)

    def take(self, request_id: str) -> float | None:
        """Remove and return a request's time; None if it was never scheduled."""
        return self._times.pop(request_id, None)
