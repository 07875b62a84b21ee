"""InProcessEngine: an engine in this process, for one run after another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from bench.errors import BenchError
from bench.in_process.instruments import Instruments
from bench.in_process.run import EngineRun
from bench.profile_report import KindReport
from bench.records import EngineRecord
from bench.settings import EngineTarget, Sampling
from bench.timetable import Timetable
from bench.workload import Request
from core.assembly.build import LoadedEngine
from core.contract.info import EngineInfo
from core.contract.messages import EngineCounters, StepOutput
from core.engine.thread import CoreThread, Died, Event, SteppingEngine
from server.process import heap

CLOSE_TIMEOUT = 10.0
"""Seconds that a running step gets to end."""


class InProcessEngine:
    """An engine and the thread that owns it. Main thread only."""

    def __init__(
        self, target: EngineTarget, *, load: Callable[[], LoadedEngine] | None = None
    ) -> None:
        """Load the engine. ``load`` loads another one than the target's. Raises BenchError."""
        self._target = target
        self._instruments = Instruments(target)
        self._load = load or self._instruments.load
        self._loaded: LoadedEngine | None = None
        self._run: EngineRun | None = None
        self._death: str | None = None
        self._is_started = threading.Event()
        self._core = CoreThread(
            self._load_and_observe,
            on_outputs=self._deliver,
            on_event=self._handle,
        )
        self._core.start()
        self._is_started.wait()
        if self._death is not None:
            raise BenchError(self._death)
        heap.freeze()  # as the server does

    @property
    def info(self) -> EngineInfo:
        assert self._loaded is not None
        return self._loaded.info

    @property
    def stats(self) -> EngineCounters:
        """The engine's counters after its last step."""
        return self._core.stats

    @property
    def profile(self) -> tuple[KindReport, ...]:
        """The time of the steps since ``clear_profile``, by kind of step."""
        return self._instruments.report()

    def clear_profile(self) -> None:
        """Drop what was measured. Between runs only."""
        self._instruments.clear()

    def close(self) -> None:
        """Stop the core thread. May be called again."""
        self._core.close(CLOSE_TIMEOUT)

    def run(
        self,
        requests: Sequence[Request],
        timetable: Timetable,
        sampling: Sampling,
        *,
        chat: bool = False,
        concurrency: int | None = None,
        on_end: Callable[[], object] = lambda: None,
    ) -> list[EngineRecord]:
        """Submit the requests as they are due; return their records once all have ended.

        Records are in the order of requests. At most ``concurrency`` are in flight. ``on_end`` is
        called when a request has ended, on any thread. Raises BenchError if the engine has died
        in an earlier run.
        """
        assert self._loaded is not None
        self._run = EngineRun(
            self._loaded,
            self._core,
            self._target,
            sampling,
            chat=chat,
            concurrency=concurrency,
            schedule_times=self._instruments.schedule_times,
            on_end=on_end,
        )
        if self._death is not None:
            raise BenchError(self._death)
        return self._run.go(requests, timetable)

    # Called by the core thread.

    def _load_and_observe(self) -> SteppingEngine:
        self._loaded = self._load()
        self._instruments.attach(self._loaded)
        return self._loaded.engine

    def _deliver(self, outputs: list[StepOutput]) -> None:
        assert self._run is not None
        self._run.deliver(outputs)

    def _handle(self, event: Event) -> None:
        if isinstance(event, Died):
            self._death = event.message
            if self._run is not None:
                self._run.fail_all(event.message)
        self._is_started.set()
