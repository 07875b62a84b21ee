"""StepProfile: where the time of an engine's steps goes, by stage and part of the forward pass."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

import torch

from bench.in_process.module_times import ONE_CALL, ModuleTimes, hook_seconds
from bench.profile_report import Kind, KindReport, PartTime, StageTime
from core.observe.step_timer import STAGES, Stage, StepTimer
from core.scheduler import SchedulerOutput

_KINDS: dict[frozenset[bool], Kind] = {
    frozenset({False}): "decode",
    frozenset({True}): "prefill",
    frozenset({False, True}): "mixed",
}
"""By whether the sequences of a step compute prompts."""

_NOTHING = torch.zeros(2, 0, 2, dtype=torch.int64)
"""The sums of a StageTimes without stages."""

_REST_OF_CALL = "rest of the call"
"""What the threads' clocks do not see of the call of all layers: Python's part, mostly."""


class StepProfile:
    """Sums the stages of an engine's steps, for steps of streams, of prompts, and of both.

    ``modules`` instruments the model when it is loaded, ``attach`` measures the engine's steps,
    which must run eagerly and one at a time. Core thread only, unless the engine is idle.
    """

    def __init__(self) -> None:
        self.modules = ModuleTimes()
        self._timer = StepTimer()
        self._call_seconds = 0.0
        self._before = _Nanoseconds()
        self._step: _Sums | None = None  # of the current step
        self._sums: dict[Kind, _Sums] = {}
        self.clear()

    def attach(self, timer: StepTimer, *, is_cuda: bool) -> None:
        """Measure the steps that ``timer`` times; on CUDA each lap waits for the device."""
        self._timer = timer
        if is_cuda:
            timer.clock = self.modules.clock = _device_clock
        self._call_seconds = hook_seconds()
        self.clear()

    def clear(self) -> None:
        """Drop what was measured."""
        stages = self.modules.stages
        names = stages.names if stages is not None else ()
        self._sums = {kind: _Sums(names) for kind in get_args(Kind)}
        self._step = None
        self._before = self._now()

    def on_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Begin a step. Everything timed since the last call belongs to the step before."""
        self._end_step()
        items = scheduler_output.scheduled
        if not items:
            return
        are_prompts = {item.num_computed_tokens < item.sequence.num_prompt_tokens for item in items}
        self._step = self._sums[_KINDS[frozenset(are_prompts)]]
        self._step.num_steps += 1
        self._step.num_sequences += len(items)
        self._step.num_tokens += scheduler_output.num_tokens

    def report(self) -> tuple[KindReport, ...]:
        """Return a report for each kind of step that occurred."""
        self._end_step()
        return tuple(
            sums.report(kind, self._call_seconds)
            for kind, sums in self._sums.items()
            if sums.num_steps
        )

    def _end_step(self) -> None:
        now = self._now()
        if self._step is not None:
            self._step.add(self._before, now)
        self._before, self._step = now, None

    def _now(self) -> _Nanoseconds:
        modules = self.modules
        sums = modules.stages.sums.clone() if modules.stages is not None else _NOTHING
        return _Nanoseconds(self._timer.nanoseconds, modules.nanoseconds, modules.calls, sums)


class _Nanoseconds:
    """Nanoseconds by stage and by part of the forward pass, calls by part, sums of a StageTimes."""

    def __init__(
        self,
        stages: Mapping[Stage, int] = {},
        parts: Mapping[str, int] = {},
        calls: Mapping[str, int] = {},
        inside: torch.Tensor = _NOTHING,
    ) -> None:
        self.stages = Counter[str](stages)
        self.parts = Counter[str](parts)
        self.calls = Counter[str](calls)
        self.inside = inside


class _Sums(_Nanoseconds):
    """All steps of one kind. ``names`` are those of the StageTimes."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        super().__init__(inside=torch.zeros((), dtype=torch.int64))
        self._names = names
        self.num_steps = 0
        self.num_sequences = 0
        self.num_tokens = 0

    def add(self, before: _Nanoseconds, after: _Nanoseconds) -> None:
        """Add what was timed between two readings."""
        self.stages += after.stages - before.stages
        self.parts += after.parts - before.parts
        self.calls += after.calls - before.calls
        self.inside = self.inside + (after.inside - before.inside)

    def report(self, kind: Kind, call_seconds: float) -> KindReport:
        """Return means per step. ``call_seconds`` is the cost of timing one call of a module."""
        return KindReport(
            kind=kind,
            num_steps=self.num_steps,
            step_ms=self._ms(self.stages.total()),
            overhead_ms=self.calls.total() * call_seconds * 1e3 / self.num_steps,
            num_sequences=self.num_sequences / self.num_steps,
            num_tokens=self.num_tokens / self.num_steps,
            stages=tuple(self._stage(name) for name in STAGES),
            waiting_ms=tuple(
                self._ms(int(thread[:, 1].sum())) for thread in self.inside[1:] if thread.any()
            ),
        )

    def _stage(self, name: Stage) -> StageTime:
        return StageTime(
            name=name,
            ms=self._ms(self.stages[name]),
            share=self._share(self.stages[name]),
            parts=self._parts() if name == "forward" and self.parts else (),
        )

    def _parts(self) -> tuple[PartTime, ...]:
        inside = self._inside()
        named: dict[str, float] = dict(self.parts)
        named["rest"] = max(0, self.stages["forward"] - self.parts.total())
        if inside:  # in place of the whole
            named[_REST_OF_CALL] = named.pop(ONE_CALL) - sum(map(sum, inside.values()))
        parts = [
            PartTime(
                name=name,
                ms=self._ms(nanoseconds),
                share=self._share(nanoseconds),
                calls=self.calls[name] / self.num_steps,
            )
            for name, nanoseconds in named.items()
        ]
        parts += [self._part_inside(name, *times) for name, times in inside.items()]
        return tuple(sorted(parts, key=lambda part: -part.ms))

    def _inside(self) -> dict[str, tuple[float, float]]:
        """Nanoseconds of each kind of stages, computing and waiting: means over the threads."""
        means: list[tuple[float, float]] = self.inside[1:].double().mean(0).tolist()
        return {
            name: (computing, waiting)
            for name, (computing, waiting) in zip(self._names, means, strict=True)
            if computing or waiting
        }

    def _part_inside(self, name: str, computing: float, waiting: float) -> PartTime:
        nanoseconds = computing + waiting
        num_multiplications, num_bytes = self.inside[0, self._names.index(name)].tolist()
        return PartTime(
            name=name,
            ms=self._ms(nanoseconds),
            share=self._share(nanoseconds),
            waiting_ms=self._ms(waiting),
            gb_s=num_bytes / nanoseconds if num_bytes else None,
            gflop_s=2 * num_multiplications / nanoseconds if num_multiplications else None,
        )

    def _ms(self, nanoseconds: float) -> float:
        return nanoseconds / 1e6 / self.num_steps

    def _share(self, nanoseconds: float) -> float:
        return nanoseconds / (self.stages.total() or 1)


def _device_clock() -> int:
    """Return the time in nanoseconds once the device has finished all launched work."""
    torch.cuda.synchronize()
    return time.perf_counter_ns()
