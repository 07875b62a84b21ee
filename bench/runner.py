"""Runner: what makes the runs of a benchmark, whether over HTTP or in process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from bench.report import RunResult
from bench.timetable import Timetable
from bench.workload import Request

if TYPE_CHECKING:
    from bench.profile_report import KindReport


class Runner(Protocol):
    """Makes one run after another against one target. Main thread only."""

    @property
    def target(self) -> str:
        """The description of the target that a report shows."""

    def run(
        self,
        requests: Sequence[Request],
        timetable: Timetable,
        on_end: Callable[[], object],
        concurrency: int | None,
    ) -> RunResult:
        """Make one run, with at most ``concurrency`` requests in flight.

        ``on_end`` is called when a request has ended.
        """

    def clear_profile(self) -> None:
        """Drop the profile of the warm-up runs."""

    @property
    def profile(self) -> Sequence[KindReport]:
        """The time of the steps since ``clear_profile``, by kind; empty without --profile."""


class CpuShare:
    """Measures how much of a core this process uses within a block."""

    share = 0.0

    def __enter__(self) -> Self:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.share = (time.process_time() - self._cpu) / (time.perf_counter() - self._wall)
