"""How prompts are computed: beside streams, beside one another, and with a prefix in common."""

from __future__ import annotations

import random

import pytest

from core.sequence import Sequence, Status
from tests.support.steps import Steps

BLOCK, BUDGET, CHUNK = 16, 512, 128


def cpu_steps(**limits: int | None) -> Steps:
    """The defaults of a CPU."""
    return Steps(
        **{
            "num_blocks": 4_000,
            "block_size": BLOCK,
            "max_num_seqs": 64,
            "max_num_batched_tokens": BUDGET,
            "prefill_chunk_size": CHUNK,
            **limits,
        }
    )


def unlike(name: int, num_tokens: int) -> range:
    """A prompt that shares nothing with one of another name."""
    return range(name * 100_000, name * 100_000 + num_tokens)


def add_streams(steps: Steps, num_streams: int) -> None:
    for i in range(num_streams):
        steps.add(unlike(1_000 + i, 1), f"stream {i}", max_tokens=10_000)
    if num_streams:
        assert len(steps.step()) == num_streams


def run_until(steps: Steps, *sequences: Sequence) -> list[dict[str, int]]:
    plans = []
    while any(s.status is not Status.FINISHED for s in sequences):
        plans.append(steps.step())
        assert len(plans) < 5_000, "no end in sight"
    return plans


# Beside streams


def test_a_long_prompt_leaves_the_streams_a_token_in_every_step():
    steps = cpu_steps()
    add_streams(steps, 8)
    long = steps.add(unlike(0, 900), "long", max_tokens=1)
    plans = run_until(steps, long)
    assert [plan["long"] for plan in plans] == [128] * 7 + [4]
    assert all(sum(n for r, n in plan.items() if r != "long") == 8 for plan in plans)


def test_where_nobody_streams_the_whole_budget_is_used():
    steps = cpu_steps()
    long = steps.add(unlike(0, 1_200), "long", max_tokens=2)
    assert [plan["long"] for plan in run_until(steps, long)] == [512, 512, 176, 1]


def test_the_chunk_is_of_all_prompts_together():
    steps = cpu_steps()
    add_streams(steps, 2)
    prompts = [steps.add(unlike(i, 100 * i), str(i), max_tokens=30) for i in range(1, 9)]
    for plan in run_until(steps, *prompts):
        assert sum(n for n in plan.values() if n > 1) <= CHUNK


def test_without_a_chunk_size_the_budget_is_the_only_limit():
    steps = cpu_steps(prefill_chunk_size=None)
    add_streams(steps, 32)
    long = steps.add(unlike(0, 900), "long", max_tokens=1)
    assert [plan["long"] for plan in run_until(steps, long)] == [480, 420]


def test_a_chunk_size_above_the_budget_does_not_lift_it():
    steps = cpu_steps(prefill_chunk_size=10_000)
    add_streams(steps, 32)
    steps.add(unlike(0, 900), "long", max_tokens=1)
    assert steps.step()["long"] == 480


def test_a_prompt_of_one_token_joins_the_streams():
    steps = cpu_steps()
    long = steps.add(unlike(0, 1_000), "long")
    short = steps.add(unlike(1, 1), "short", max_tokens=1)
    assert steps.step() == {"short": 1, "long": 128}
    assert (long.status, short.status) == (Status.RUNNING, Status.FINISHED)


def test_a_prompt_of_which_all_is_cached_but_the_last_token_joins_the_streams():
    steps = cpu_steps()
    run_until(steps, steps.add(unlike(0, 1_025), "first", max_tokens=1))
    steps.add(unlike(1, 1_000), "long")
    steps.add(unlike(0, 1_025), "again", max_tokens=1)
    assert steps.step() == {"again": 1, "long": 128}


# Beside one another


def test_a_short_prompt_does_not_wait_for_a_long_one():
    steps = cpu_steps()
    add_streams(steps, 4)
    steps.add(unlike(0, 4_000), "long")
    steps.step()
    short = steps.add(unlike(1, 100), "short", max_tokens=1)
    plans = run_until(steps, short)
    assert [plan["short"] for plan in plans] == [64, 36]
    assert [plan["long"] for plan in plans] == [64, 80]  # up to the end of a block


def test_a_short_prompt_passes_those_that_came_between():
    steps = cpu_steps()
    for i in range(10):
        steps.add(unlike(i, 2_000), str(i))
    short = steps.add(unlike(50, 60), "short", max_tokens=1)
    assert steps.step() == {"short": 60, "0": 448}
    assert short.status is Status.FINISHED


def test_equal_prompts_end_one_after_the_other():
    steps = cpu_steps()
    prompts = [steps.add(unlike(i, 512), str(i), max_tokens=1) for i in range(8)]
    assert run_until(steps, *prompts) == [{str(i): 512} for i in range(8)]


def test_at_most_two_prompts_go_slowly_at_a_time():
    steps = cpu_steps()
    rng = random.Random(0)
    prompts = [
        steps.add(unlike(i, rng.randrange(200, 3_000)), str(i), max_tokens=1) for i in range(10)
    ]
    num_begun = []
    while any(s.status is not Status.FINISHED for s in prompts):
        steps.step()
        live = [s for s in prompts if s.status is not Status.FINISHED]
        num_begun.append(sum(s.num_computed_tokens > 0 for s in live))
    assert max(num_begun) <= 2


def test_short_prompts_for_ever_do_not_starve_a_long_one():
    """The long one always has half, to the end of a block, of what streams leave to prompts."""
    steps = cpu_steps(max_num_seqs=8)
    add_streams(steps, 1)
    long = steps.add(unlike(0, 4_000), "long", max_tokens=1)
    num_steps = 0
    while long.status is not Status.FINISHED:
        for i in range(2):
            steps.add(unlike(2_000 + 2 * num_steps + i, 90), f"{num_steps}.{i}", max_tokens=1)
        num_pending_tokens = long.num_pending_tokens
        assert steps.step()["long"] >= min(CHUNK // 2, num_pending_tokens)
        num_steps += 1
    assert num_steps <= -(-4_000 // (CHUNK // 2))
    assert steps.scheduler.num_waiting > 0


def test_everyone_becomes_the_oldest_some_day():
    """Of two long ones the second gets nothing while short ones come, until the first is done."""
    steps = cpu_steps(max_num_seqs=8)
    add_streams(steps, 1)
    first = steps.add(unlike(1, 1_000), "first", max_tokens=1)
    second = steps.add(unlike(2, 2_000), "second", max_tokens=1)
    num_steps = 0
    while second.status is not Status.FINISHED:
        steps.add(unlike(3_000 + num_steps, 120), f"short {num_steps}", max_tokens=1)
        steps.step()
        num_steps += 1
    assert first.status is Status.FINISHED
    assert num_steps <= -(-1_000 // 64) + -(-2_000 // 64)


# With a prefix in common


@pytest.mark.parametrize("chunk", [CHUNK, None, 50])
@pytest.mark.parametrize("num_streams", [0, 5])
@pytest.mark.parametrize("num_requests", [2, 8, 20])
def test_simultaneous_requests_compute_their_prefix_once(num_requests, num_streams, chunk):
    steps = cpu_steps(prefill_chunk_size=chunk)
    add_streams(steps, num_streams)
    rng = random.Random(num_requests)
    lengths = [rng.randrange(1, 60) for _ in range(num_requests)]
    sequences = [
        steps.add([*unlike(0, 1_024), *unlike(i, length)], str(i), max_tokens=1)
        for i, length in enumerate(lengths, 1)
    ]
    plans = run_until(steps, *sequences)
    computed = sum(n for plan in plans for r, n in plan.items() if not r.startswith("stream"))
    assert computed == 1_024 + sum(lengths)
    cached = sum(s.num_cached_tokens for s in sequences)
    assert computed + cached == sum(s.num_prompt_tokens for s in sequences)


def test_a_prefix_that_ends_within_a_block_costs_each_the_rest_of_it():
    steps = cpu_steps()
    sequences = [
        steps.add([*unlike(0, 700), *unlike(i, 20)], str(i), max_tokens=1) for i in range(1, 9)
    ]
    computed = sum(sum(plan.values()) for plan in run_until(steps, *sequences))
    assert computed == 688 + 8 * (12 + 20)


def test_those_who_join_while_a_prefix_is_computed_take_part():
    steps = cpu_steps()
    add_streams(steps, 3)
    sequences, computed = [], 0
    for i in range(1, 13):
        prompt = [*unlike(0, 1_024), *unlike(i, 10)]
        sequences.append(steps.add(prompt, str(i), max_tokens=1))
        computed += sum(n for r, n in steps.step().items() if not r.startswith("stream"))
    computed += sum(
        n
        for plan in run_until(steps, *sequences)
        for r, n in plan.items()
        if not r.startswith("stream")
    )
    assert computed == 1_024 + 12 * 10


def test_a_shorter_follower_computes_ahead_and_the_first_takes_it_over():
    steps = cpu_steps(max_num_batched_tokens=128)
    a = steps.add([*unlike(0, 320), *unlike(1, 50)], "a", max_tokens=1)
    b = steps.add([*unlike(0, 320), *unlike(2, 20)], "b", max_tokens=1)
    assert steps.step() == {"b": 64, "a": 64}
    assert (a.num_computed_tokens, b.num_computed_tokens) == (128, 64)
    assert steps.step() == {"b": 64, "a": 64}
    assert (a.num_computed_tokens, b.num_computed_tokens) == (256, 192)


# Blocked for lack of blocks


def test_a_head_that_has_no_room_is_left_as_it_is():
    steps = Steps(num_blocks=12, block_size=4)
    cached = steps.add(range(16), "cached", max_tokens=1)
    run_until(steps, cached)
    steps.add(unlike(1, 20), "stream", max_tokens=4)
    steps.step()
    head = steps.add([*range(16), *unlike(2, 14)], "head", max_tokens=1)
    free = list(steps.kv._pool._free)
    for _ in range(3):
        assert steps.step() == {"stream": 1}
    assert (head.num_cached_tokens, head.num_computed_tokens) == (0, 0)
    assert set(steps.kv._pool._free) >= set(free[2:])  # the stream took what it needed
    run_until(steps, head)
    assert head.num_cached_tokens == 16


def test_what_others_hold_of_a_prefix_takes_no_room():
    steps = Steps(num_blocks=12, block_size=4)
    steps.add(range(32), "first", max_tokens=5)
    steps.step()
    steps.add([*range(32), 77], "second", max_tokens=1)  # nine blocks, eight of them are there
    assert steps.step() == {"first": 1, "second": 1}


def test_who_is_alone_may_fill_the_pool():
    steps = Steps(num_blocks=7, block_size=4)
    steps.add(range(28), "a", max_tokens=1)
    steps.add([50], "b", max_tokens=1)
    assert [steps.step(), steps.step()] == [{"a": 28}, {"b": 1}]


def test_nobody_is_admitted_on_the_blocks_that_the_running_will_soon_want():
    steps = Steps(num_blocks=7, block_size=4)
    first = steps.add([1] * 8, "first", max_tokens=4)
    second = steps.add([2] * 10, "second", max_tokens=3)
    third = steps.add([3] * 2, "third", max_tokens=2)
    assert steps.step() == {"first": 8, "second": 10}
    assert steps.kv.num_free_blocks == 2  # one would do for the third
    plans = run_until(steps, first, second, third)
    assert [set(plan) for plan in plans[:3]] == [{"first", "second"}] * 2 + [{"first", "third"}]
    assert steps.scheduler.num_preemptions == 0
