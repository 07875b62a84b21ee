"""Exceptions in each stage of a step end only the request that causes them.

What a neighbour does, and what fails beside a request, never changes its text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.contract.messages import EngineRequest, EngineStats, StepOutput
from core.engine.engine import ENGINE_FAILED, Engine, failed_with
from core.engine.generation import Generation
from tests.support.tiny_engine import build_engine, request, run

pytestmark = pytest.mark.slow

KINDS = [
    {},
    {"temperature": 1.0, "seed": 1},
    {"temperature": 0.8, "top_p": 0.9, "seed": 2},
    {"temperature": 1.2, "repetition_penalty": 1.3, "seed": 3},
]
PREFIX = [5] * 9


class Fault(Exception):
    """What a bug raises."""


def asked(name: str, kind: int, length: int, max_tokens: int = 12) -> EngineRequest:
    return request(name, [*PREFIX, *[10 + kind] * length], max_tokens, **KINDS[kind])


def answer_of(outputs: list[StepOutput]) -> tuple[str, list[int]]:
    assert outputs[-1].finish_reason == "length"
    text = "".join(output.text for output in outputs)
    return text, [token_id for output in outputs for token_id in output.token_ids]


@functools.cache
def alone(kind: int, length: int, max_tokens: int = 12) -> tuple[str, list[int]]:
    engine = build_engine("llama", max_num_batched_tokens=48)
    return answer_of(run(engine, [asked("alone", kind, length, max_tokens)])["alone"])


# A fault in each stage


class Fuse:
    """Raises when the guilty request is in the step: always, or only the first time."""

    def __init__(self, *, once: bool) -> None:
        self.once = once
        self.names: set[str] = set()  # of the step that is launched
        self.num_raised = 0

    def burn(self, names: set[str]) -> None:
        if "guilty" in names and not (self.once and self.num_raised):
            self.num_raised += 1
            raise Fault


def in_schedule(fuse: Fuse, engine: Engine, _patch: pytest.MonkeyPatch) -> None:
    scheduler = engine._scheduler
    original = scheduler.schedule

    def schedule() -> Any:
        fuse.burn({s.request_id for s in scheduler})
        return original()

    scheduler.schedule = schedule  # type: ignore[method-assign]


def in_inputs(fuse: Fuse, engine: Engine, _patch: pytest.MonkeyPatch) -> None:
    inputs: Any = engine._pipeline._runner._inputs  # type: ignore[attr-defined]
    original = inputs.of

    def build(scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        fuse.burn({sequence.request_id for sequence, _ in scheduled})
        return original(scheduled, *args, **kwargs)

    inputs.of = build


def in_forward(fuse: Fuse, engine: Engine, _patch: pytest.MonkeyPatch) -> None:
    runner: Any = engine._pipeline._runner
    launch, forward = runner.launch, runner._forward

    def launched(output: Any) -> Any:
        fuse.names = {item.sequence.request_id for item in output.scheduled}
        return launch(output)

    def passed(batch: Any) -> Any:
        logits = forward(batch)
        fuse.burn(fuse.names)
        return logits

    runner.launch, runner._forward = launched, passed


def in_sampling(fuse: Fuse, engine: Engine, _patch: pytest.MonkeyPatch) -> None:
    sampler: Any = engine._pipeline._runner._sampler  # type: ignore[attr-defined]
    original = sampler.launch

    def launch(logits: Any, sequences: Any, **kwargs: Any) -> Any:
        tokens = original(logits, sequences, **kwargs)
        fuse.burn({sequence.request_id for sequence in sequences})
        return tokens

    sampler.launch = launch


def in_text(fuse: Fuse, _engine: Engine, patch: pytest.MonkeyPatch) -> None:
    original = Generation.advance

    def advance(self: Generation, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        fuse.burn({self.sequence.request_id})

    patch.setattr(Generation, "advance", advance)


STAGES: dict[str, Callable[[Fuse, Engine, pytest.MonkeyPatch], None]] = {
    "schedule": in_schedule,
    "inputs": in_inputs,
    "forward": in_forward,
    "sampling": in_sampling,
    "detokenise": in_text,
}


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("once", [False, True])
def test_a_fault_in_a_stage_ends_one_request_at_most(once, stage, async_scheduling, monkeypatch):
    engine = build_engine("llama", async_scheduling=async_scheduling, max_num_batched_tokens=48)
    fuse = Fuse(once=once)
    STAGES[stage](fuse, engine, monkeypatch)
    shapes = {str(i): (i % 4, 3 + i) for i in range(4)}
    requests = [asked(name, *shape) for name, shape in shapes.items()]
    outputs = run(engine, [*requests[:2], asked("guilty", 1, 8), *requests[2:]])
    for name, shape in shapes.items():
        assert answer_of(outputs[name]) == alone(*shape)
    assert fuse.num_raised
    last = outputs["guilty"][-1]
    if once and stage != "detokenise":
        assert answer_of(outputs["guilty"]) == alone(1, 8)
    else:
        assert (last.error, last.is_retryable) == (failed_with(Fault()), False)
    assert engine.stats().num_free_blocks == engine.stats().num_blocks


# Determinism


SHAPES = st.tuples(st.integers(0, 3), st.sampled_from([1, 6, 30]), st.sampled_from([1, 9, 16]))


COMPANY = {
    "shapes": st.lists(SHAPES, min_size=2, max_size=8),
    "storms": st.lists(st.integers(1, 25), max_size=3),
    "faults": st.lists(st.integers(1, 25), max_size=3),
    "num_blocks": st.sampled_from([16, 20, 60]),
    "async_scheduling": st.booleans(),
}


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(**COMPANY)
def test_a_text_is_the_same_alone_and_in_any_company(**company):
    """Preemption, cancellation storms and repeated steps; greedy and seeded."""
    check_company(**company)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(**COMPANY)
def test_a_text_is_the_same_alone_and_in_any_of_a_hundred_companies(**company):
    check_company(**company)


def test_company_preempts_and_repeats():
    """So the tests above are about something."""
    shapes = [(i % 4, 30, 16) for i in range(4)]
    company = {"num_blocks": 20, "async_scheduling": False}
    stats = check_company(shapes, storms=[2, 6], faults=[3, 9], **company)
    assert stats.num_preemptions > 0
    assert stats.num_failed_steps == 2


def check_company(
    shapes: list[tuple[int, int, int]],
    storms: list[int],
    faults: list[int],
    num_blocks: int,
    *,
    async_scheduling: bool,
) -> EngineStats:
    """Run the requests of these shapes one after the other, and compare each with itself alone.

    ``storms`` are the steps in which twelve others come, which leave after it; ``faults`` are the
    steps that fail.
    """
    reasons = {failed_with(Fault())}
    if len(set(faults)) < len(faults):  # the second fault of a step may be that of the canary
        reasons.add(ENGINE_FAILED)
    faults = list(faults)
    engine = build_engine(
        "llama",
        async_scheduling=async_scheduling,
        num_blocks=num_blocks,
        max_num_batched_tokens=48,
    )
    runner: Any = engine._pipeline._runner
    forward, num_steps = runner._forward, 0

    def faulty(batch: Any) -> Any:
        if num_steps in faults:
            faults.remove(num_steps)
            raise Fault
        return forward(batch)

    runner._forward = faulty
    outputs: dict[str, list[StepOutput]] = {}
    pending = {str(i): shape for i, shape in enumerate(shapes)}
    while pending or engine.has_work:
        num_steps += 1
        if pending:
            name, shape = pending.popitem()
            engine.add(asked(name, *shape))
            outputs[name] = []
        if num_steps in storms:
            doomed = [f"doomed {num_steps} {i}" for i in range(12)]
            for i, victim in enumerate(doomed):
                engine.add(asked(victim, i % 4, 1 + i))
        elif num_steps - 1 in storms:
            for victim in doomed:
                engine.abort(victim)
        for output in engine.step():
            outputs.setdefault(output.request_id, []).append(output)
        engine.check()
    for i, shape in enumerate(shapes):
        if outputs[str(i)][-1].error is None:
            assert answer_of(outputs[str(i)]) == alone(*shape)
        else:  # a step of it alone met a fault that comes once
            assert outputs[str(i)][-1].error in reasons
    return engine.stats()
