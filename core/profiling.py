"""Where the time of a step goes, found out from outside: an engine without a profile pays nothing.

Bound methods of one engine's parts are replaced on the instances, and hooks are put on the
model's modules; all of it stays for the life of the engine. What is measured runs on the core
thread.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeAlias, TypeVar

import msgspec
import torch
from torch import nn

from core.contract.messages import StepOutput
from core.engine import Engine
from core.profile_report import STAGES, Kind, KindReport, StageTime
from core.scheduler import SchedulerOutput

P = ParamSpec("P")
T = TypeVar("T")

_Key: TypeAlias = tuple[str, str]  # a stage, and a part of it or ""

CALIBRATION_CALLS = 1000


class StepProfile:
    """Sums up where the time of an engine's steps goes. Core thread only, unless it is idle."""

    def __init__(self) -> None:
        self._timer = _Timer()
        self._plan: SchedulerOutput | None = None
        self._kind: Kind = "decode"
        self._ended = 0
        self._call_cost = 0.0
        self._sums: dict[Kind, _Sums] = {}
        self.clear()

    def clear(self) -> None:
        """Forget what was measured."""
        self._sums = {"decode": _Sums(), "prefill": _Sums()}

    def attach(self, engine: Engine) -> None:
        """Measure every step of this engine from now on. Once only."""
        parts: Any = engine
        parts._async_scheduling = False
        runner = parts._runner
        eager = runner._forward = runner._forward.eager
        if eager.device.type == "cuda":
            self._timer.synchronize = torch.cuda.synchronize
        parts.step = self._timed_step(parts.step)
        parts._scheduler.schedule = self._timed_schedule(parts._scheduler.schedule)
        parts._commit = self._timer.timed("commit", parts._commit)
        parts._land = self._timer.timed("results", parts._land)
        runner.launch = self._timer.timed("inputs", runner.launch)
        runner.forward = self._timed_forward(runner.forward)
        eager.backend.plan = self._timer.timed("forward", eager.backend.plan, "attention plan")
        runner._sampler = _TimedSampler(runner._sampler, self._timer)
        self._call_cost = _cost_of_hooks()
        self._watch(eager.model)

    def timed_delivery(
        self, deliver: Callable[[list[StepOutput]], None]
    ) -> Callable[[list[StepOutput]], None]:
        """What hands outputs on, measured as the last stage of the step that made them."""
        timed = self._timer.timed("delivery", deliver)

        def delivery(outputs: list[StepOutput]) -> None:
            self._timer.begin()
            timed(outputs)
            now = self._timer.now()
            self._sums[self._kind].add(self._timer.spent, now - self._ended)
            self._ended = now

        return delivery

    def report(self) -> tuple[KindReport, ...]:
        """The kinds of steps that there were."""
        return tuple(
            sums.report(kind, self._call_cost)
            for kind, sums in self._sums.items()
            if sums.num_steps
        )

    def _timed_step(self, step: Callable[[], list[StepOutput]]) -> Callable[[], list[StepOutput]]:
        def timed_step() -> list[StepOutput]:
            self._begin()
            start = self._timer.now()
            outputs = step()
            self._ended = self._timer.now()
            if self._plan is not None:
                sums = self._sums[self._kind]
                sums.num_steps += 1
                sums.num_sequences += len(self._plan.scheduled)
                sums.num_tokens += self._plan.num_tokens
                sums.add(self._timer.spent, self._ended - start)
            return outputs

        return timed_step

    def _begin(self) -> None:
        self._timer.begin()
        self._plan = None

    def _timed_schedule(
        self, schedule: Callable[[], SchedulerOutput]
    ) -> Callable[[], SchedulerOutput]:
        timed = self._timer.timed("schedule", schedule)

        def timed_schedule() -> SchedulerOutput:
            self._plan = plan = timed()
            computes_prompt = any(
                item.sequence.num_computed_tokens < item.sequence.num_prompt_tokens
                for item in plan.scheduled
            )
            self._kind = "prefill" if computes_prompt else "decode"
            return plan

        return timed_schedule

    def _timed_forward(self, forward: Callable[P, T]) -> Callable[P, T]:
        def timed_forward(*args: P.args, **kwargs: P.kwargs) -> T:
            self._timer.turn("results")  # what launch does after it
            with self._timer.measure("forward"):
                return forward(*args, **kwargs)

        return timed_forward

    def _watch(self, model: nn.Module) -> None:
        """Measure every module by its class, and the attention that ours calls."""
        timer = self._timer
        for module in model.modules():
            name = type(module).__name__
            module.register_forward_pre_hook(
                lambda _m, _args, name=name: timer.enter("forward", name)
            )
            module.register_forward_hook(lambda _m, _args, _out: timer.leave(), always_call=True)
            attention: Any = module.__dict__.get("roseinfer_attention")
            if attention is not None:
                timed: Any = timer.timed("forward", attention, "attention")
                module.roseinfer_attention = timed


class ScheduleTimes:
    """When each request was first scheduled, in ``time.perf_counter()`` seconds.

    Filled on the core thread; any thread may ``take``.
    """

    def __init__(self) -> None:
        self._times: dict[str, float] = {}

    def attach(self, engine: Engine) -> None:
        """Note it for all requests of this engine from now on."""
        parts: Any = engine
        schedule = parts._scheduler.schedule

        def noting_schedule() -> SchedulerOutput:
            plan: SchedulerOutput = schedule()
            now = time.perf_counter()
            for item in plan.scheduled:
                if item.sequence.num_output_tokens == 0:
                    self._times.setdefault(item.sequence.request_id, now)
            return plan

        parts._scheduler.schedule = noting_schedule

    def take(self, request_id: str) -> float | None:
        """The time, which is forgotten; None if the request has not been scheduled."""
        return self._times.pop(request_id, None)


class _Timer:
    """Times nested calls; what is spent in an inner one is not counted for the outer one."""

    def __init__(self) -> None:
        self.synchronize: Callable[[], None] | None = None
        self.spent: dict[_Key, list[int]] = {}  # nanoseconds and calls
        self._stack: list[_Frame] = []

    def now(self) -> int:
        """Nanoseconds, when the device has done what it was told."""
        if self.synchronize is not None:
            self.synchronize()
        return time.perf_counter_ns()

    def begin(self) -> None:
        """Begin anew."""
        self.spent = defaultdict(lambda: [0, 0])
        self._stack.clear()

    def enter(self, stage: str, part: str = "") -> None:
        """Something begins."""
        self._stack.append(_Frame((stage, part), self.now()))

    def leave(self) -> None:
        """What was entered last is over."""
        now = self.now()
        frame = self._stack.pop()
        self._count(frame, now)
        if self._stack:
            self._stack[-1].inner += now - frame.entered

    def turn(self, stage: str) -> None:
        """What was entered last is of another stage from now on."""
        now = self.now()
        frame = self._stack[-1]
        self._count(frame, now)
        frame.key, frame.start, frame.inner = (stage, ""), now, 0

    def _count(self, frame: _Frame, now: int) -> None:
        spent = self.spent[frame.key]
        spent[0] += now - frame.start - frame.inner
        spent[1] += 1

    @contextmanager
    def measure(self, stage: str, part: str = "") -> Iterator[None]:
        """Time a block."""
        self.enter(stage, part)
        try:
            yield
        finally:
            self.leave()

    def timed(self, stage: str, function: Callable[P, T], part: str = "") -> Callable[P, T]:
        """The function, timed."""

        def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            self.enter(stage, part)
            try:
                return function(*args, **kwargs)
            finally:
                self.leave()

        return timed


class _Frame:
    """A call that is under way: what it is, when it began, and what of that was spent inside."""

    __slots__ = ("entered", "inner", "key", "start")

    def __init__(self, key: _Key, now: int) -> None:
        self.key = key
        self.entered = self.start = now
        self.inner = 0


class _TimedSampler:
    """A sampler whose two methods are timed."""

    def __init__(self, sampler: Any, timer: _Timer) -> None:
        self.prepare = timer.timed("masks", sampler.prepare)
        self.launch = timer.timed("sampling", sampler.launch)


class _Sums:
    """What was spent in all steps of one kind. Nanoseconds."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.num_sequences = 0
        self.num_tokens = 0
        self._total = 0
        self._spent: dict[_Key, list[int]] = defaultdict(lambda: [0, 0])

    def add(self, spent: dict[_Key, list[int]], total: int) -> None:
        """Add a step, or what follows one."""
        self._total += total
        for key, (nanoseconds, calls) in spent.items():
            sums = self._spent[key]
            sums[0] += nanoseconds
            sums[1] += calls

    def report(self, kind: Kind, call_cost: float) -> KindReport:
        """Means; ``call_cost`` is what measuring one call costs, in seconds."""
        num_calls = sum(calls for _, calls in self._spent.values())
        self._spent["other", ""] = [self._total - sum(ns for ns, _ in self._spent.values()), 0]
        report = KindReport(
            kind=kind,
            num_steps=self.num_steps,
            step_ms=self._total / 1e6 / self.num_steps,
            overhead_ms=num_calls * call_cost * 1e3 / self.num_steps,
            num_sequences=self.num_sequences / self.num_steps,
            num_tokens=self.num_tokens / self.num_steps,
            stages=tuple(self._stage(name) for name in STAGES if self._has(name)),
        )
        del self._spent["other", ""]
        return report

    def _has(self, stage: str) -> bool:
        return any(name == stage for name, _ in self._spent)

    def _stage(self, stage: str) -> StageTime:
        own = {part: spent for (name, part), spent in self._spent.items() if name == stage}
        parts = [self._time(part or "rest", *spent) for part, spent in own.items()]
        nanoseconds = sum(ns for ns, _ in own.values())
        calls = own.get("", [0, 0])[1]
        return msgspec.structs.replace(
            self._time(stage, nanoseconds, calls),
            parts=tuple(sorted(parts, key=lambda t: -t.ms)) if len(parts) > 1 else (),
        )

    def _time(self, name: str, nanoseconds: int, calls: int) -> StageTime:
        return StageTime(
            name=name,
            ms=nanoseconds / 1e6 / self.num_steps,
            share=nanoseconds / self._total,
            calls=calls / self.num_steps,
        )


def _cost_of_hooks() -> float:
    """Seconds that measuring one call of a module takes."""
    plain, watched, timer = nn.Identity(), nn.Identity(), _Timer()
    watched.register_forward_pre_hook(lambda _m, _args: timer.enter("forward", "x"))
    watched.register_forward_hook(lambda _m, _args, _out: timer.leave(), always_call=True)
    timer.begin()
    costs = []
    for module in (plain, watched):
        start = time.perf_counter()
        for _ in range(CALIBRATION_CALLS):
            module(None)
        costs.append(time.perf_counter() - start)
    return max(0.0, costs[1] - costs[0]) / CALIBRATION_CALLS
