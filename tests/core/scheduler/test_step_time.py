"""The size of chunks follows durations that the tests make up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.scheduler.step_time import StepTime
from core.sequence import Sequence, Status
from tests.support.steps import Steps


def test_without_a_measured_step_nothing_is_known():
    assert StepTime(0.1).max_tokens() is None


def test_the_line_through_steps_with_and_without_prompts_is_followed():
    step_time = StepTime(0.1)
    step_time.observe(8, 8, 0.018)  # 10 ms, and 1 ms a token
    step_time.observe(68, 9, 0.078)
    assert step_time.max_tokens() in (89, 90)


def test_a_step_that_is_too_long_is_followed_by_a_shorter_one():
    step_time = StepTime(0.1)
    step_time.observe(8, 8, 0.018)
    step_time.observe(508, 9, 0.518)
    assert step_time.max_tokens() in (89, 90)


def test_a_step_grows_at_most_by_half_of_its_bound_at_a_time():
    step_time = StepTime(10.0)
    step_time.observe(8, 8, 0.018)
    step_time.observe(24, 9, 0.034)
    assert step_time.max_tokens() == 48


def test_one_interrupted_step_changes_little():
    step_time = StepTime(0.1)
    step_time.observe(8, 8, 0.018)
    step_time.observe(90, 9, 0.1)
    step_time.observe(90, 9, 5.0)
    assert step_time.max_tokens() > 30
    for _ in range(6):
        num_tokens = step_time.max_tokens()
        step_time.observe(num_tokens, 9, 0.010 + 0.001 * num_tokens)
    assert step_time.max_tokens() in range(80, 95)


def test_a_machine_too_slow_for_the_bound_gets_no_prompt_tokens_beyond_the_least():
    step_time = StepTime(0.1)
    step_time.observe(8, 8, 0.6)
    step_time.observe(24, 9, 0.7)
    assert step_time.max_tokens() == 0


@given(
    base=st.floats(0.001, 0.08),
    per_token=st.floats(0.00005, 0.01),
    first=st.integers(2, 512),
    num_streams=st.integers(1, 8),
)
def test_any_linear_machine_is_kept_to_the_bound(base, per_token, first, num_streams):
    step_time = StepTime(0.1)

    def observe(num_tokens, num_sequences):
        step_time.observe(num_tokens, num_sequences, base + per_token * num_tokens)

    observe(first, 1)
    observe(num_streams, num_streams)
    for _ in range(30):
        observe(max(step_time.max_tokens(), num_streams + 2), num_streams + 1)
    best = (0.1 - base) / per_token
    assert step_time.max_tokens() == pytest.approx(best, rel=0.1, abs=2)


def run(steps: Steps, *, base: float, per_token: float) -> list[tuple[int, float]]:
    """A prompt of 900 tokens beside 8 streams: its chunks and the durations of the steps."""
    for i in range(8):
        steps.add([1000 + i], f"stream {i}", max_tokens=500)
    found: list[tuple[int, float]] = []
    long: Sequence | None = None
    while long is None or long.status is not Status.FINISHED:
        plan = steps.step()
        seconds = base + per_token * sum(plan.values())
        steps.scheduler.observe(sum(plan.values()), len(plan), seconds)
        if long is None:
            long = steps.add(range(10_000, 10_900), "long", max_tokens=1)
        else:
            found.append((plan["long"], seconds))
    return found


def slow(per_token: float, **limits: int) -> list[tuple[int, float]]:
    steps = Steps(
        num_blocks=200,
        block_size=16,
        max_num_seqs=16,
        max_num_batched_tokens=512,
        max_step_seconds=0.1,
        **limits,
    )
    return run(steps, base=0.01, per_token=per_token)


@pytest.mark.parametrize("per_token", [0.0005, 0.001, 0.003])
def test_the_worst_step_beside_streams_is_the_same_on_any_machine(per_token):
    found = slow(per_token)
    assert max(seconds for _, seconds in found) <= 0.1
    assert max(seconds for _, seconds in found) >= 0.08 - 16 * per_token  # chunks end with a block


def test_the_chunk_size_is_the_ceiling():
    assert max(num_tokens for num_tokens, _ in slow(0.0001, prefill_chunk_size=48)) == 48


def test_at_least_a_block_of_a_prompt_is_computed():
    assert {num_tokens for num_tokens, _ in slow(0.05)} == {16, 4}
