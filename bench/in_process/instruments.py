"""Instruments: what a benchmark measures inside the engine."""

from __future__ import annotations

import msgspec

from bench.in_process.schedule_times import ScheduleTimes
from bench.in_process.step_profile import StepProfile
from bench.profile_report import KindReport
from bench.settings import EngineTarget
from core.assembly.build import LoadedEngine, load_engine
from core.scheduler import SchedulerOutput


class Instruments:
    """Notes when requests are first scheduled and, with ``--profile``, times the steps."""

    def __init__(self, target: EngineTarget) -> None:
        self._target = target
        self._profile = StepProfile() if target.profile else None
        self.schedule_times = ScheduleTimes()

    def load(self) -> LoadedEngine:
        """Load the target's engine, with its modules timed for a profile."""
        model, engine = self._target.model, self._target.engine
        if self._profile is None:
            return load_engine(model, engine)
        engine = msgspec.structs.replace(engine, enforce_eager=True, async_scheduling=False)
        return load_engine(model, engine, instrument=self._profile.modules.instrument)

    def attach(self, loaded: LoadedEngine) -> None:
        """Observe a loaded engine, in place of any other instruments. Core thread."""
        loaded.engine.observe(self._on_schedule)
        if self._profile is not None:
            is_cuda = loaded.info.device.startswith("cuda")
            self._profile.attach(loaded.engine.timer, is_cuda=is_cuda)

    def report(self) -> tuple[KindReport, ...]:
        """The profile since ``clear``; empty without ``--profile``."""
        return self._profile.report() if self._profile is not None else ()

    def clear(self) -> None:
        """Drop what the profile measured. Between runs only."""
        if self._profile is not None:
            self._profile.clear()

    def _on_schedule(self, scheduler_output: SchedulerOutput) -> None:
        self.schedule_times.on_schedule(scheduler_output)
        if self._profile is not None:
            self._profile.on_schedule(scheduler_output)
