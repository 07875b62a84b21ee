"""A token late in a prompt counts as several, so chunks keep to the bound wherever they begin."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.scheduler.prompt_rows import PromptRows
from core.state.sequence import Status
from tests.support.steps import Steps

KEYS_PER_ROW, BLOCK = 300, 16


def test_attention_to_so_many_keys_costs_a_row():
    rows = PromptRows(1000)
    assert rows.of(1000, 10) == 20
    assert rows.of(0, 10) == 10
    assert rows.of_pairs(3000) == 3


def test_without_attention_a_token_is_a_row():
    rows = PromptRows()
    assert [rows.of(10**6, 7), rows.fitting(10**6, 7)] == [7, 7]


@given(
    keys_per_row=st.one_of(st.floats(1, 1e5), st.just(math.inf)),
    start=st.integers(0, 100_000),
    budget=st.integers(-5, 2000),
)
def test_what_fits_is_the_most(keys_per_row, start, budget):
    rows = PromptRows(keys_per_row)
    num_tokens = rows.fitting(start, budget)
    assert rows.of(start, num_tokens) <= max(budget, 0)
    assert rows.of(start, num_tokens + 1) > budget


def seconds_of(plan: dict[str, int], steps: Steps) -> tuple[float, float]:
    """How long a step took, and pairs of tokens of its prompts; after the step."""
    pairs = 0.0
    for sequence in steps.scheduler:
        num_tokens = plan.get(sequence.request_id, 0)
        if num_tokens > 1:
            pairs += num_tokens * (sequence.num_computed_tokens - num_tokens / 2)
    return 0.01 + 0.001 * (sum(plan.values()) + pairs / KEYS_PER_ROW), pairs


@pytest.mark.parametrize("beside", [False, True])
def test_a_chunk_after_a_long_cached_prefix_keeps_to_the_bound(beside):
    """The steps before had prompts without context: 70 tokens fitted, here 6 do."""
    steps = Steps(
        num_blocks=600,
        block_size=BLOCK,
        max_num_seqs=16,
        max_num_batched_tokens=512,
        max_step_seconds=0.1,
        keys_per_row=KEYS_PER_ROW,
    )
    document = range(3000)
    long = steps.add(document, "document", max_tokens=1)
    while long.status is not Status.FINISHED:
        steps.step()
    for i in range(8):
        steps.add(range(10_000 * i + 5000, 10_000 * i + 5004), f"stream {i}", max_tokens=900)
    steps.step()

    def run(most: float) -> None:
        plan = steps.step()
        seconds, pairs = seconds_of(plan, steps)
        assert seconds <= most
        steps.scheduler.observe(sum(plan.values()), len(plan), seconds, pairs)

    run(0.02)
    short = steps.add(range(200_000, 200_600), "short", max_tokens=2)
    while short.status is not Status.FINISHED:
        run(0.1)
    asked = steps.add([*document, *range(300_000, 300_200)], "asked", max_tokens=2)
    if beside:
        steps.add(range(400_000, 400_300), "other", max_tokens=2)
    num_steps = 0
    while asked.status is not Status.FINISHED:
        run(0.1)
        num_steps += 1
    assert num_steps < 60, "200 tokens after 3,000 cost 2,200 rows"
