"""The size of chunks follows durations that the tests make up."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.scheduler.step_time import StepTime
from core.state.sequence import Sequence, Status
from tests.support.steps import Steps

LEAST = 16


def test_without_a_measured_step_nothing_is_known():
    assert StepTime(0.1).prompt_tokens(1, LEAST) is None


def test_the_first_step_with_prompts_has_the_least_chunk():
    step_time = StepTime(0.1)
    step_time.observe(1, 1, 0.05)
    assert step_time.prompt_tokens(1, LEAST) == LEAST


def test_the_line_through_steps_with_and_without_prompts_is_followed():
    step_time = StepTime(0.1)
    step_time.observe(8, 8, 0.018)  # 10 ms, and 1 ms a token
    step_time.observe(68, 9, 0.078)
    assert step_time.prompt_tokens(8, LEAST) in (81, 82)


def test_a_step_that_is_too_long_is_followed_by_a_shorter_one():
    step_time = StepTime(0.1)
    step_time.observe(8, 8, 0.018)
    step_time.observe(508, 9, 0.518)
    assert step_time.prompt_tokens(8, LEAST) in (81, 82)


def test_a_step_grows_at_most_by_half_of_its_bound_at_a_time():
    step_time = StepTime(10.0)
    step_time.observe(8, 8, 0.018)
    step_time.observe(24, 9, 0.034)
    assert step_time.prompt_tokens(8, LEAST) == 40


def test_one_interrupted_step_changes_little():
    step_time = StepTime(0.1)
    step_time.observe(8, 8, 0.018)
    step_time.observe(90, 9, 0.1)
    step_time.observe(90, 9, 5.0)
    assert step_time.prompt_tokens(8, LEAST) > 65
    step_time.observe(90, 9, 5.0)
    assert step_time.prompt_tokens(8, LEAST) < 45, "two of them are no chance"
    for _ in range(6):
        num_tokens = step_time.prompt_tokens(8, LEAST) + 8
        step_time.observe(num_tokens, 9, 0.010 + 0.001 * num_tokens)
    assert step_time.prompt_tokens(8, LEAST) in range(72, 87)


def test_a_prompt_beside_one_stream_leaves_the_shortest_chunks():
    """A chunk of one token would look like a step without prompts, and correct nothing."""
    step_time = StepTime(0.05)
    for _ in range(3):
        step_time.observe(1, 1, 0.0055)
    step_time.observe(17, 2, 0.8)  # the first one waited for the system
    for _ in range(12):
        num_tokens = step_time.prompt_tokens(1, LEAST) + 1
        step_time.observe(num_tokens, 2, 0.005 + 0.0005 * num_tokens)
    assert step_time.prompt_tokens(1, LEAST) > 40


def test_steps_that_the_arrival_of_a_prompt_interrupts_do_not_lengthen_its_steps():
    step_time = StepTime(0.05)
    step_time.observe(53, 9, 0.034)
    for seconds in (0.0107, 0.0107, 0.0238, 0.0281, 0.0217):
        step_time.observe(8, 8, seconds)
    assert step_time.prompt_tokens(8, LEAST) in range(75, 90)  # 50 ms; 98 tokens took 66


def test_tokens_that_cost_nothing_yet_are_not_the_last_word():
    """Reading the weights hides the cost of a few tokens: 17 take as long as one."""
    step_time = StepTime(0.1)
    step_time.observe(1, 1, 0.06)
    step_time.observe(17, 2, 0.06)
    assert step_time.prompt_tokens(1, LEAST) in range(2 * LEAST, 2 * LEAST + 2)


@pytest.mark.parametrize(("least", "num_tokens"), [(4, 177), (100, 179)])
def test_a_flat_line_is_used_up_to_a_quarter_over_proportion(least, num_tokens):
    """99 tokens more took 37 ms more, so the line has 180 tokens."""
    step_time = StepTime(0.1)
    step_time.observe(1, 1, 0.033)
    step_time.observe(100, 2, 0.07)  # in proportion 142 tokens fit
    assert step_time.prompt_tokens(1, least) == num_tokens, "or the least chunk more than before"


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
        observe(num_streams + max(step_time.prompt_tokens(num_streams, 1), 2), num_streams + 1)
    slow = 3 * (base + per_token * num_streams)
    fitting = (max(0.1, slow) - base) / per_token - num_streams
    if fitting > 2:
        assert step_time.prompt_tokens(num_streams, 1) == pytest.approx(fitting, rel=0.1, abs=2)


Machine = Callable[[int], float]
"""Seconds of a step by its tokens."""


def linear(base: float, per_token: float) -> Machine:
    return lambda num_tokens: base + per_token * num_tokens


def streams_and(*prompts: tuple[str, int], **limits: int) -> Steps:
    """8 streams, and other prompts by name and length."""
    steps = Steps(
        num_blocks=200,
        block_size=LEAST,
        max_num_seqs=16,
        max_num_batched_tokens=512,
        max_step_seconds=0.1,
        **limits,
    )
    for i in range(8):
        steps.add(range(1000 * i, 1000 * i + 4), f"stream {i}", max_tokens=500)
    if prompts:
        steps.step()
        steps.scheduler.observe(8, 8, 0.018)
    for number, (name, length) in enumerate(prompts):
        start = 10_000 * (number + 1)
        steps.add(range(start, start + length), name, max_tokens=1)
    return steps


def run(machine: Machine, length: int = 900, **limits: int) -> list[tuple[int, float]]:
    """A prompt beside 8 streams: its chunks and the durations of the steps."""
    steps = streams_and(**limits)
    found: list[tuple[int, float]] = []
    long: Sequence | None = None
    for number in itertools.count():
        plan = steps.step()
        seconds = machine(sum(plan.values()))
        steps.scheduler.observe(sum(plan.values()), len(plan), seconds)
        if long is not None:
            if "long" in plan:
                found.append((plan["long"], seconds))
            if long.status is Status.FINISHED:
                return found
        elif number == 2:
            long = steps.add(range(10_000, 10_000 + length), "long", max_tokens=1)
    raise AssertionError


@pytest.mark.parametrize("per_token", [0.0005, 0.001, 0.002])
def test_the_worst_step_beside_streams_is_the_same_on_any_machine(per_token):
    """Nine tenths of the bound, to the token: a chunk of the only prompt need not fill a block."""
    found = run(linear(0.01, per_token))
    worst = max(seconds for _, seconds in found)
    assert 0.09 - 2 * per_token < worst <= 0.09


def test_chunks_of_several_prompts_end_with_a_block():
    steps = streams_and(("first", 900), ("second", 800))
    for _ in range(5):
        plan = steps.step()
        steps.scheduler.observe(sum(plan.values()), len(plan), 0.01 + 0.001 * sum(plan.values()))
        ends = [sequence.num_computed_tokens for sequence in steps.scheduler]
        assert all(end % LEAST == 0 for end in ends[8:])


@pytest.mark.parametrize(
    "machine",
    [
        lambda n: max(0.05, 0.003 * n),  # reading the weights hides the cost of 16 tokens
        lambda n: max(0.06, 0.0015 * n),
        lambda n: 0.03 + 0.012 * -(-n // 16),  # rows are computed in tiles
        lambda n: 0.03 if n == 8 else 0.06 + 0.002 * n,  # prompts cost something once
        linear(0.05, 0.0005),
    ],
)
def test_a_machine_that_is_not_linear_exceeds_the_bound_by_less_than_a_half(machine):
    found = run(machine)
    bound = max(0.1, 3 * machine(8))
    assert max(seconds for _, seconds in found) < 1.5 * bound
    settled = [seconds for num_tokens, seconds in found[len(found) // 2 : -1]]
    assert sum(settled) / len(settled) <= 1.15 * bound


@pytest.mark.parametrize(
    ("base", "per_token", "alone"),
    [(0.03, 0.006, 0.078), (0.038, 0.0085, 0.106), (0.35, 0.02, 0.51), (0.09, 0.001, 0.098)],
)
def test_beside_slow_streams_a_step_takes_at_most_three_times_as_long(base, per_token, alone):
    found = run(linear(base, per_token))
    assert max(seconds for _, seconds in found) <= 3 * alone + per_token
    settled = [seconds for _, seconds in found[len(found) // 2 : -1]]
    assert sum(settled) / len(settled) >= 2.4 * alone, "prompts get two thirds of the time"


def test_the_chunk_size_is_the_ceiling():
    assert (
        max(num_tokens for num_tokens, _ in run(linear(0.01, 0.0001), prefill_chunk_size=48)) == 48
    )


def test_a_token_of_a_prompt_is_computed_at_least():
    found = run(lambda num_tokens: 0.1 if num_tokens == 8 else 5.0 * num_tokens, length=60)
    assert {num_tokens for num_tokens, _ in found} <= {1, 2}


def test_many_slow_streams_leave_a_quarter_of_their_tokens_to_prompts():
    step_time = StepTime(0.1)
    step_time.observe(40, 40, 0.5)
    step_time.observe(48, 41, 2.0)  # an interrupted step, or a long context
    assert step_time.prompt_tokens(40, 16) == 10
    assert step_time.prompt_tokens(100, 16) == 25


def test_prompts_beside_many_streams_get_what_a_longer_step_allows():
    """Steps of 64 streams take 114 ms without prompts; with them, three times as long."""
    step_time = StepTime(0.1)

    def observe(num_tokens: int, num_sequences: int) -> None:
        step_time.observe(num_tokens, num_sequences, 0.05 + 0.001 * num_tokens)

    observe(64, 64)
    for _ in range(10):
        num_tokens = step_time.prompt_tokens(64, LEAST)
        observe(64 + num_tokens, 65)
    assert num_tokens in range(224, 232)


def test_a_step_without_prompts_is_not_needed_to_know_how_long_it_takes():
    """Prompts have waited since the start, while the streams became 64."""
    step_time = StepTime(0.1)
    for _ in range(10):
        step_time.observe(64 + LEAST, 65, 0.2)
    assert step_time.prompt_tokens(64, LEAST) > LEAST


def test_streams_alone_are_measured_twice_before_a_second_step_with_prompts():
    step_time = StepTime(0.05)
    assert not step_time.must_measure(4, num_steps=8), "the first chunk is as short as can be"
    step_time.observe(512, 2, 1.2)
    for seconds in (0.4, 0.037):  # an interrupted one
        assert step_time.must_measure(2, num_steps=7)
        step_time.observe(2, 2, seconds)
    assert not step_time.must_measure(2, num_steps=8)
    assert step_time.prompt_tokens(2, LEAST) in range(31, 34), "111 ms are allowed"


def measured(num_streams: int) -> StepTime:
    """Steps of so many streams alone, and one with a prompt."""
    step_time = StepTime(0.05)
    for _ in range(2):
        step_time.observe(num_streams, num_streams, 0.037)
    step_time.observe(num_streams + 30, num_streams + 1, 0.1)
    return step_time


def test_streams_alone_are_measured_again_when_they_are_twice_as_many():
    step_time = measured(1)
    for num_streams in (2, 4, 8, 16):
        assert not step_time.must_measure(num_streams - 1, num_steps=8)
        assert step_time.must_measure(num_streams, num_steps=8)
        step_time.observe(num_streams, num_streams, 0.037)
        step_time.observe(num_streams + 30, num_streams + 1, 0.1)


def test_streams_alone_are_measured_again_after_many_steps_with_prompts():
    step_time, num_steps = measured(8), 1
    while not step_time.must_measure(8, num_steps=8):
        step_time.observe(38, 9, 0.1)
        num_steps += 1
    assert num_steps == 32
    assert not step_time.must_measure(8, num_steps=7)


def test_the_first_step_of_the_streams_alone_replaces_what_was_known_of_fewer():
    """16 streams take 70 ms, one took 24. Steps with prompts may take 210 ms from now on."""
    step_time = measured(1)
    step_time.observe(46, 17, 0.13)
    step_time.observe(16, 16, 0.07)
    step_time.observe(46, 17, 0.13)
    step_time.observe(46, 17, 0.13)
    assert step_time.prompt_tokens(16, LEAST) in range(68, 73), "210 ms are allowed"


def test_a_measurement_that_was_interrupted_is_repeated_before_it_is_believed():
    """16 streams take 67 ms by the line through steps of one stream and with a prompt."""
    step_time = measured(1)
    step_time.observe(46, 17, 0.13)
    allowed = step_time.prompt_tokens(16, LEAST)
    step_time.observe(16, 16, 0.5)
    assert step_time.prompt_tokens(16, LEAST) == allowed, "not 1.5 s"
    assert step_time.must_measure(16, num_steps=8)
    step_time.observe(16, 16, 0.07)
    assert not step_time.must_measure(16, num_steps=8)
    step_time.observe(46, 17, 0.13)
    step_time.observe(46, 17, 0.13)
    assert step_time.prompt_tokens(16, LEAST) in range(68, 73), "210 ms are allowed"


@pytest.mark.parametrize("order", [1, -1])
def test_the_shorter_of_two_late_measurements_is_believed(order):
    """The line says that 16 streams take 67 ms. They take 110, but for an interrupted step."""
    step_time = measured(1)
    step_time.observe(46, 17, 0.13)
    for seconds in (0.11, 0.5)[::order]:
        step_time.observe(16, 16, seconds)
    for _ in range(10):
        num_tokens = step_time.prompt_tokens(16, LEAST)
        step_time.observe(16 + num_tokens, 17, 0.11 + 0.002 * num_tokens)
    assert num_tokens in range(108, 112), "330 ms are allowed"


def test_a_late_step_of_few_streams_says_nothing_of_a_later_one_of_many():
    """A step takes 50 ms, and 2 for each token; one was interrupted before the streams were 32."""
    step_time = StepTime(0.1)

    def observe(num_prompt_tokens: int, num_streams: int) -> None:
        num_tokens = num_streams + num_prompt_tokens
        step_time.observe(
            num_tokens, num_streams + (num_prompt_tokens > 0), 0.05 + 0.002 * num_tokens
        )

    for _ in range(8):
        observe(0, 1)
    for _ in range(3):
        observe(20, 1)
    step_time.observe(1, 1, 0.066)
    for num_streams in (8, 16, 24, 32):
        observe(20, num_streams)
    assert step_time.must_measure(32, num_steps=8)
    observe(0, 32)
    for _ in range(8):
        num_tokens = step_time.prompt_tokens(32, LEAST)
        observe(num_tokens, 32)
    assert num_tokens in range(112, 116), "342 ms are allowed"


@pytest.mark.parametrize(("num_streams", "counts"), [(32, True), (16, True), (8, False)])
def test_a_late_step_counts_for_the_next_of_as_many_streams_or_fewer(num_streams, counts):
    step_time = measured(1)
    step_time.observe(46, 17, 0.13)
    step_time.observe(num_streams, num_streams, 0.2)
    step_time.observe(16, 16, 5.0)
    assert step_time.must_measure(16, num_steps=8) != counts


def test_what_single_steps_between_short_prompts_took_is_believed_too():
    step_time = measured(8)
    for _ in range(2):
        step_time.observe(8, 8, 0.06)
        step_time.observe(38, 9, 0.12)
    assert step_time.prompt_tokens(8, LEAST) > 1.1 * measured(8).prompt_tokens(8, LEAST)


def test_short_prompts_wait_for_no_measurement():
    steps = streams_and()
    steps.step()
    for _ in range(2):
        steps.scheduler.observe(4, 4, 0.018)
    steps.scheduler.observe(64, 9, 0.05)
    steps.add(range(10_000, 10_000 + 40), "short", max_tokens=1)
    assert steps.step()["short"] == 40
    steps.add(range(20_000, 20_000 + 1200), "long", max_tokens=1)
    assert "long" not in steps.step()
    steps.scheduler.observe(8, 8, 0.018)
    assert "long" in steps.step()


def test_beside_slow_streams_too_a_step_has_at_most_twice_the_tokens_of_the_measured_ones():
    step_time = StepTime(0.1)
    step_time.observe(20, 20, 0.5)
    step_time.observe(100, 21, 0.5001)  # the line has no end
    assert step_time.prompt_tokens(20, LEAST) == 2 * 100 - 20
