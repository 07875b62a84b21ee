"""Scheduling of prefills: beside decodes, beside one another, and with a shared prefix."""

from __future__ import annotations

import random
from typing import Any

from core.state.sequence import Sequence, Status
from tests.support.each import each
from tests.support.steps import Steps

BLOCK, BUDGET, CHUNK = 16, 512, 128


def cpu_steps(**limits: Any) -> Steps:
    """A scheduler with the defaults for a CPU."""
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


def unique(name: int, num_tokens: int) -> range:
    """A prompt that shares no token with prompts of other names."""
    return range(name * 100_000, name * 100_000 + num_tokens)


def add_streams(steps: Steps, num_streams: int) -> None:
    for i in range(num_streams):
        steps.add(unique(1_000 + i, 1), f"stream {i}", max_tokens=10_000)
    if num_streams:
        assert len(steps.step()) == num_streams


def run_until(steps: Steps, *sequences: Sequence) -> list[dict[str, int]]:
    batches = []
    while any(s.status is not Status.FINISHED for s in sequences):
        batches.append(steps.step())
        assert len(batches) < 5_000, "the sequences do not finish"
    return batches


# Beside decodes


def test_decodes_are_in_every_step_of_a_long_prefill():
    steps = cpu_steps()
    add_streams(steps, 8)
    long = steps.add(unique(0, 900), "long", max_tokens=1)
    batches = run_until(steps, long)
    assert [batch["long"] for batch in batches] == [128] * 7 + [4]
    assert all(sum(n for r, n in batch.items() if r != "long") == 8 for batch in batches)


def test_without_decodes_a_prefill_uses_the_whole_budget():
    steps = cpu_steps()
    long = steps.add(unique(0, 1_200), "long", max_tokens=2)
    assert [batch["long"] for batch in run_until(steps, long)] == [512, 512, 176, 1]


def test_the_chunk_size_limits_all_prefills_together():
    steps = cpu_steps()
    add_streams(steps, 2)
    prompts = [steps.add(unique(i, 100 * i), str(i), max_tokens=30) for i in range(1, 9)]
    for batch in run_until(steps, *prompts):
        assert sum(n for n in batch.values() if n > 1) <= CHUNK


def test_without_a_chunk_size_only_the_budget_limits_prefills():
    steps = cpu_steps(prefill_chunk_size=None)
    add_streams(steps, 32)
    long = steps.add(unique(0, 900), "long", max_tokens=1)
    assert [batch["long"] for batch in run_until(steps, long)] == [480, 420]


def test_a_chunk_size_above_the_budget_does_not_raise_it():
    steps = cpu_steps(prefill_chunk_size=10_000)
    add_streams(steps, 32)
    steps.add(unique(0, 900), "long", max_tokens=1)
    assert steps.step()["long"] == 480


def test_a_prompt_of_one_token_is_scheduled_as_a_decode():
    steps = cpu_steps()
    long = steps.add(unique(0, 1_000), "long")
    short = steps.add(unique(1, 1), "short", max_tokens=1)
    assert steps.step() == {"short": 1, "long": 128}
    assert (long.status, short.status) == (Status.RUNNING, Status.FINISHED)


def test_a_prompt_cached_up_to_its_last_token_is_scheduled_as_a_decode():
    steps = cpu_steps()
    run_until(steps, steps.add(unique(0, 1_025), "first", max_tokens=1))
    steps.add(unique(1, 1_000), "long")
    steps.add(unique(0, 1_025), "again", max_tokens=1)
    assert steps.step() == {"again": 1, "long": 128}


# Beside one another


def test_a_short_prompt_does_not_wait_for_a_long_one():
    steps = cpu_steps()
    add_streams(steps, 4)
    steps.add(unique(0, 4_000), "long")
    steps.step()
    short = steps.add(unique(1, 100), "short", max_tokens=1)
    batches = run_until(steps, short)
    assert [batch["short"] for batch in batches] == [64, 36]
    assert [batch["long"] for batch in batches] == [64, 80]  # up to a block boundary


def test_a_short_prompt_overtakes_longer_ones():
    steps = cpu_steps()
    for i in range(10):
        steps.add(unique(i, 2_000), str(i))
    short = steps.add(unique(50, 60), "short", max_tokens=1)
    assert steps.step() == {"short": 60, "0": 448}
    assert short.status is Status.FINISHED


def test_equal_prompts_finish_one_after_the_other():
    steps = cpu_steps()
    prompts = [steps.add(unique(i, 512), str(i), max_tokens=1) for i in range(8)]
    assert run_until(steps, *prompts) == [{str(i): 512} for i in range(8)]


def test_at_most_two_prompts_are_partly_computed():
    steps = cpu_steps()
    rng = random.Random(0)
    prompts = [
        steps.add(unique(i, rng.randrange(200, 3_000)), str(i), max_tokens=1) for i in range(10)
    ]
    num_begun = []
    while any(s.status is not Status.FINISHED for s in prompts):
        steps.step()
        live = [s for s in prompts if s.status is not Status.FINISHED]
        num_begun.append(sum(s.num_computed_tokens > 0 for s in live))
    assert max(num_begun) <= 2


def test_endless_short_prompts_do_not_starve_a_long_one():
    """The oldest prompt always gets half of the prefill tokens, up to a block boundary."""
    steps = cpu_steps(max_num_seqs=8)
    add_streams(steps, 1)
    long = steps.add(unique(0, 4_000), "long", max_tokens=1)
    num_steps = 0
    while long.status is not Status.FINISHED:
        for i in range(2):
            steps.add(unique(2_000 + 2 * num_steps + i, 90), f"{num_steps}.{i}", max_tokens=1)
        num_pending_tokens = long.num_pending_tokens
        assert steps.step()["long"] >= min(CHUNK // 2, num_pending_tokens)
        num_steps += 1
    assert num_steps <= -(-4_000 // (CHUNK // 2))
    assert steps.scheduler.num_waiting > 0


def test_every_prompt_becomes_the_oldest():
    """The second long prompt starts when the first is finished, although short ones keep coming."""
    steps = cpu_steps(max_num_seqs=8)
    add_streams(steps, 1)
    first = steps.add(unique(1, 1_000), "first", max_tokens=1)
    second = steps.add(unique(2, 2_000), "second", max_tokens=1)
    num_steps = 0
    while second.status is not Status.FINISHED:
        steps.add(unique(3_000 + num_steps, 120), f"short {num_steps}", max_tokens=1)
        steps.step()
        num_steps += 1
    assert first.status is Status.FINISHED
    assert num_steps <= -(-1_000 // 64) + -(-2_000 // 64)


# With a shared prefix


@each("chunk", [CHUNK, None, 50])
@each("num_streams", [0, 5])
@each("num_requests", [2, 8, 20])
def test_simultaneous_requests_compute_their_prefix_once(num_requests, num_streams, chunk):
    steps = cpu_steps(prefill_chunk_size=chunk)
    add_streams(steps, num_streams)
    rng = random.Random(num_requests)
    lengths = [rng.randrange(1, 60) for _ in range(num_requests)]
    sequences = [
        steps.add([*unique(0, 1_024), *unique(i, length)], str(i), max_tokens=1)
        for i, length in enumerate(lengths, 1)
    ]
    batches = run_until(steps, *sequences)
    computed = sum(n for batch in batches for r, n in batch.items() if not r.startswith("stream"))
    assert computed == 1_024 + sum(lengths)
    cached = sum(s.num_cached_tokens for s in sequences)
    assert computed + cached == sum(s.num_prompt_tokens for s in sequences)


def test_each_request_computes_the_part_of_a_prefix_inside_a_block():
    steps = cpu_steps()
    sequences = [
        steps.add([*unique(0, 700), *unique(i, 20)], str(i), max_tokens=1) for i in range(1, 9)
    ]
    computed = sum(sum(batch.values()) for batch in run_until(steps, *sequences))
    assert computed == 688 + 8 * (12 + 20)


def test_requests_that_join_during_a_shared_prefill_share_it():
    steps = cpu_steps()
    add_streams(steps, 3)
    sequences, computed = [], 0
    for i in range(1, 13):
        prompt = [*unique(0, 1_024), *unique(i, 10)]
        sequences.append(steps.add(prompt, str(i), max_tokens=1))
        computed += sum(n for r, n in steps.step().items() if not r.startswith("stream"))
    computed += sum(
        n
        for batch in run_until(steps, *sequences)
        for r, n in batch.items()
        if not r.startswith("stream")
    )
    assert computed == 1_024 + 12 * 10


def test_a_shorter_prompt_computes_the_prefix_and_the_older_reuses_it():
    steps = cpu_steps(max_num_batched_tokens=128)
    a = steps.add([*unique(0, 320), *unique(1, 50)], "a", max_tokens=1)
    b = steps.add([*unique(0, 320), *unique(2, 20)], "b", max_tokens=1)
    assert steps.step() == {"b": 64, "a": 64}
    assert (a.num_computed_tokens, b.num_computed_tokens) == (128, 64)
    assert steps.step() == {"b": 64, "a": 64}
    assert (a.num_computed_tokens, b.num_computed_tokens) == (256, 192)


# With few blocks


def test_a_waiting_sequence_without_room_stays_unchanged():
    steps = Steps(num_blocks=12, block_size=4)
    cached = steps.add(range(16), "cached", max_tokens=1)
    run_until(steps, cached)
    steps.add(unique(1, 20), "stream", max_tokens=4)
    steps.step()
    head = steps.add([*range(16), *unique(2, 14)], "head", max_tokens=1)
    free = list(steps.kv._pool._free)
    for _ in range(3):
        assert steps.step() == {"stream": 1}
    assert (head.num_cached_tokens, head.num_computed_tokens) == (0, 0)
    assert set(steps.kv._pool._free) >= set(free[2:])  # the decode used two
    run_until(steps, head)
    assert head.num_cached_tokens == 16


def test_a_shared_prefix_in_use_takes_no_room():
    steps = Steps(num_blocks=12, block_size=4)
    steps.add(range(32), "first", max_tokens=5)
    steps.step()
    steps.add([*range(32), 77], "second", max_tokens=1)  # nine blocks, eight of them shared
    assert steps.step() == {"first": 1, "second": 1}


def test_a_single_sequence_may_fill_the_pool():
    steps = Steps(num_blocks=7, block_size=4)
    steps.add(range(28), "a", max_tokens=1)
    steps.add([50], "b", max_tokens=1)
    assert [steps.step(), steps.step()] == [{"a": 28}, {"b": 1}]


def test_admission_leaves_spare_blocks_for_running_sequences():
    steps = Steps(num_blocks=7, block_size=4)
    first = steps.add([1] * 8, "first", max_tokens=4)
    second = steps.add([2] * 10, "second", max_tokens=3)
    third = steps.add([3] * 2, "third", max_tokens=2)
    assert steps.step() == {"first": 8, "second": 10}
    assert steps.kv.num_free_blocks == 2  # the third needs one
    batches = run_until(steps, first, second, third)
    assert [set(batch) for batch in batches[:3]] == [{"first", "second"}] * 2 + [{"first", "third"}]
    assert steps.scheduler.num_preemptions == 0
