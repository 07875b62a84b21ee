"""Exceptions in the engine's bookkeeping end only the requests that cause them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.engine.engine import ENGINE_FAILED, failed_with
from core.engine.failures import MAX_FAILED_STEPS
from tests.support.scripted import Rig

PROMPTS = {str(i): [7] * 9 + [i] * 3 for i in range(8)}
MAX_TOKENS = 12


class Fault(Exception):
    """What a bug raises."""


def rig_of(*, async_scheduling: bool) -> Rig:
    rig = Rig(async_scheduling=async_scheduling, num_blocks=30)
    for name, prompt in PROMPTS.items():
        rig.add(name, prompt=prompt, max_tokens=MAX_TOKENS)
    return rig


def alone(name: str) -> list[int]:
    rig = Rig()
    rig.add(name, prompt=PROMPTS[name], max_tokens=MAX_TOKENS)
    return rig.run()[name].token_ids


def raise_once(rig: Rig, owner: Any, method: str, *, after: int, before: bool) -> None:
    """Let a method raise in its call number ``after``, before or after it did its work."""
    original, calls = getattr(owner, method), []

    def faulty(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if before and len(calls) == after:
            raise Fault
        result = original(*args, **kwargs)
        if len(calls) == after:
            raise Fault
        return result

    setattr(owner, method, faulty)


PLACES: dict[str, Callable[[Rig], tuple[Any, str]]] = {
    "schedule": lambda rig: (rig.scheduler, "schedule"),
    "admit": lambda rig: (rig.scheduler, "_admit"),
    "allocate": lambda rig: (rig.kv, "allocate"),
    "reuse": lambda rig: (rig.kv, "reuse_cached"),
    "cache": lambda rig: (rig.kv, "cache_blocks"),
    "finish": lambda rig: (rig.scheduler, "finish"),
    "free": lambda rig: (rig.kv, "free"),
    "observe": lambda rig: (rig.scheduler, "observe"),
    "add": lambda rig: (rig.scheduler, "add"),
}


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_a_fault_that_comes_once_ends_no_request(place, before, async_scheduling):
    for after in (1, 3, 5):
        rig = Rig(async_scheduling=async_scheduling, num_blocks=30)
        raise_once(rig, *PLACES[place](rig), after=after, before=before)
        waiting = dict(PROMPTS)

        def add_two(_num_steps: int = 0, rig: Rig = rig, waiting: dict = waiting) -> None:
            for name in list(waiting)[:2]:
                rig.add(name, prompt=waiting.pop(name), max_tokens=MAX_TOKENS)

        add_two()
        answers = rig.run(between=add_two)
        for name in PROMPTS:
            assert answers[name].last.finish_reason == "length"
            assert answers[name].token_ids == alone(name)
        assert rig.num_used_blocks == 0


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("at_step", [0, 3])
def test_a_request_that_cannot_be_scheduled_ends_alone(async_scheduling, at_step):
    rig = rig_of(async_scheduling=async_scheduling)
    original, is_poisoned = rig.scheduler.schedule, []

    def schedule() -> Any:
        if is_poisoned and any(s.request_id == "5" for s in rig.scheduler):
            raise Fault
        return original()

    rig.scheduler.schedule = schedule

    def poison(num_steps: int) -> None:
        if num_steps == at_step:
            is_poisoned.append(1)

    poison(0)
    answers = rig.run(between=poison)
    output = answers["5"].last
    assert (output.error, output.is_retryable) == (failed_with(Fault()), False)
    for name in PROMPTS.keys() - {"5"}:
        assert answers[name].token_ids == alone(name)
    assert rig.num_used_blocks == 0


def test_what_no_request_causes_is_said_to_be_retryable():
    """The first failure starts all requests again; the next one ends them."""
    rig = rig_of(async_scheduling=False)
    original, num_left = rig.scheduler.schedule, [3]

    def schedule() -> Any:
        if len(list(rig.scheduler)) > 1 and num_left[0]:
            num_left[0] -= 1
            raise Fault
        return original()

    rig.scheduler.schedule = schedule
    outputs = {o.request_id: o for _ in range(3) for o in rig.outputs()}
    assert outputs.keys() == PROMPTS.keys()
    assert {(o.error, o.is_retryable) for o in outputs.values()} == {(ENGINE_FAILED, True)}
    rig.add("next", b"good", max_tokens=4)
    assert rig.run()["next"].text == "good"


def test_an_engine_that_cannot_schedule_gives_up():
    rig = Rig()

    def schedule() -> Any:
        raise Fault

    rig.scheduler.schedule = schedule
    for i in range(MAX_FAILED_STEPS - 1):
        rig.add(str(i))
        rig.step()
    rig.add("last")
    with pytest.raises(Fault):
        rig.step()
    assert [o.request_id for o in rig.engine.fail_all("over")] == ["last"]


@pytest.mark.parametrize("method", ["add", "finish"])
def test_requests_that_fail_as_they_come_or_go_end_alone(method):
    """However many of them there are without a step between them."""
    rig = rig_of(async_scheduling=False)
    original = getattr(rig.scheduler, method)

    def faulty(sequence: Any) -> None:
        if sequence.request_id.startswith("bad"):
            raise Fault
        original(sequence)

    setattr(rig.scheduler, method, faulty)
    for i in range(MAX_FAILED_STEPS + 1):
        rig.add(f"bad{i}", max_tokens=2)
        rig.engine.abort(f"bad{i}")
    rig.add("bad", max_tokens=2)
    answers = rig.run()
    for name in PROMPTS:
        assert answers[name].last.finish_reason == "length"
        assert answers[name].token_ids == alone(name)
    if method == "add":
        assert answers["bad"].last.error == failed_with(Fault())
    assert rig.num_used_blocks == 0


def test_an_aborted_request_stays_aborted():
    rig = rig_of(async_scheduling=False)
    rig.step()
    raise_once(rig, rig.kv, "free", after=1, before=True)
    rig.engine.abort("3")
    answers = rig.run()
    assert answers.keys() == PROMPTS.keys() - {"3"}
    assert all(answer.last.finish_reason == "length" for answer in answers.values())
