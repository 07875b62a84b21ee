"""The bars of admission under pressure, on a fake clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.scheduling import (
    GPT2,
    QWEN3,
    QWEN3_AMX,
    Machine,
    Request,
    blocked_head,
    burst,
    long_prompt,
    many_prompts,
    simulate,
    under_pressure,
)

HALF_A_BLOCK = 8
"""Tokens: a chunk ends with the nearest block."""


def test_one_request_alone():
    outcome = simulate(Machine(1000, step_seconds=1, token_seconds=0), [Request(10, 5, 8)])
    assert (outcome.num_steps, outcome.seconds, outcome.num_output_tokens) == (5, 5, 5)
    assert outcome.num_computed_tokens == outcome.num_needed_tokens == 14


@pytest.mark.parametrize("part", [0.25, 0.5])
@pytest.mark.parametrize("max_tokens", [256, 512])
@pytest.mark.parametrize("shares", [(1.0, 1.0), (0.5, 1.0), (0.1, 0.9), (0.02, 0.2)])
def test_64_requests_compute_at_most_a_tenth_more_than_needed(max_tokens, shares, part):
    requests = burst(64, max_tokens, shares)
    machine = under_pressure(requests, part)
    assert simulate(machine, requests).extra <= 0.1


def test_a_cache_with_room_for_all_costs_nothing():
    requests = burst(64, 256, (1.0, 1.0))
    outcome = simulate(Machine(100_000), requests)
    assert (outcome.extra, outcome.num_preemptions) == (0, 0)
    assert max(outcome.first_step.values()) < 64


def test_small_requests_do_not_wait_for_a_head_that_does_not_fit():
    """They waited 2,034 steps, and the head 2,019, when none could pass it."""
    outcome = simulate(*blocked_head())
    assert max(outcome.first_step[index] for index in range(3, 41)) <= 40
    assert outcome.first_step[2] <= 2019 + 40


def test_the_worst_gap_stays_below_the_bound():
    machine = Machine(GPT2.num_kv_tokens, max_step_seconds=0.1, prefill_chunk_size=None)
    assert simulate(*long_prompt(machine)).longest_gap <= 0.1


def test_beside_slow_streams_the_worst_gap_is_three_times_that_without_prompts():
    """Steps of the streams alone take 106 ms with the clock of Qwen3-0.6B."""
    machine = replace(QWEN3, max_step_seconds=0.1, prefill_chunk_size=None)
    assert simulate(*long_prompt(machine)).longest_gap <= 3 * 0.106 + HALF_A_BLOCK * 0.0085


def test_short_prompts_behind_slow_streams_start_soon():
    """It was 712 ms, the worst gap 130 ms, when no step had more than a block of prompts."""
    machine = replace(QWEN3_AMX, max_step_seconds=0.1, prefill_chunk_size=None)
    outcome = simulate(*many_prompts(machine))
    without_prompts = machine.step_seconds + 64 * machine.token_seconds
    assert sorted(outcome.first_token.values())[62] <= 0.3
    assert outcome.longest_gap <= 1.35 * without_prompts
