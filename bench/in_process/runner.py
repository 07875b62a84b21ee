"""EngineRunner: runs against an engine in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.figures import curves_of, summarize, summarize_engine
from bench.in_process.engine import InProcessEngine
from bench.report import RunResult
from bench.runner import CpuShare
from bench.settings import BenchSettings, EngineTarget
from bench.timetable import Timetable
from bench.workload import Request

if TYPE_CHECKING:
    from bench.profile_report import KindReport


class EngineRunner:
    """See Runner."""

    def __init__(
        self, engine: InProcessEngine, target: EngineTarget, settings: BenchSettings
    ) -> None:
        self._engine = engine
        self._settings = settings
        name = target.random_model or target.model.model or "the built-in model"
        kind = ", random weights" if target.random_model else ""
        info = engine.info
        self.target = f"{name}{kind}, in process: {info.dtype} on {info.device}"

    @property
    def profile(self) -> Sequence[KindReport]:
        return self._engine.profile

    def clear_profile(self) -> None:
        self._engine.clear_profile()

    def run(
        self,
        requests: Sequence[Request],
        timetable: Timetable,
        on_end: Callable[[], object],
        concurrency: int | None,
    ) -> RunResult:
        before = self._engine.stats
        with CpuShare() as cpu:
            records = self._engine.run(
                requests,
                timetable,
                self._settings.sampling,
                chat=self._settings.chat,
                concurrency=concurrency,
                on_end=on_end,
            )
        return RunResult(
            client=summarize(records),
            engine=summarize_engine(records, before, self._engine.stats),
            cpu_share=cpu.share,
            curves=curves_of(records),
        )


@contextmanager
def engine_runner(target: EngineTarget, settings: BenchSettings) -> Iterator[EngineRunner]:
    """A runner and its engine. Raises BenchError."""
    engine = InProcessEngine(target)
    try:
        yield EngineRunner(engine, target, settings)
    finally:
        engine.close()
