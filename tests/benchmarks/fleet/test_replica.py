"""A simulated replica beside the engine's scheduler, on the same clock."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks import scheduling
from benchmarks.fleet.machine import Machine
from benchmarks.fleet.replica import Replica
from benchmarks.fleet.request import Request
from benchmarks.fleet.scenario_load import Prompt
from benchmarks.fleet.step_times import PiecewiseLinear, StepTimes
from benchmarks.scheduling import GPT2, QWEN3_AMX, long_prompt, many_prompts, simulate


def replica_of(clock, **changes):
    """A replica with the clock of benchmarks/scheduling.py."""
    seconds = tuple(clock.step_seconds + n * clock.token_seconds for n in (1, 2))
    seconds_limit = clock.max_step_seconds
    fields = {
        "kv_tokens": clock.num_kv_tokens,
        "max_num_seqs": clock.max_num_seqs,
        "max_num_batched_tokens": clock.max_num_batched_tokens,
        "prefill_chunk_size": clock.prefill_chunk_size,
        "keys_per_row": clock.keys_per_row,
        "max_step_ms": None if seconds_limit is None else 1e3 * seconds_limit,
    } | changes
    names = {"name": "", "source": "", "steps": (), "stream_knots": (1,), "prompt_knots": (1,)}
    machine = Machine(**names, max_model_len=9999, **fields)
    line = PiecewiseLinear((1, 2), seconds)
    return Replica(machine, StepTimes(line, line))


def run(replica, arrivals):
    """Requests by index of their arrival: (request, at)."""
    left = sorted(arrivals, key=lambda item: item[1])
    while True:
        while left and (replica.due is None or left[0][1] <= replica.due):
            request, at = left.pop(0)
            replica.arrive(request, at)
        if replica.due is None:
            return
        replica.advance()


def requests_of(requests):
    """Simulated requests; all that share tokens are of one kind."""
    found = []
    for i, request in enumerate(requests):
        num_shared = request.num_shared_tokens
        conversation = Prompt(0, 0, num_shared=num_shared, kind=0 if num_shared else i + 1)
        size = request.num_prompt_tokens, request.num_output_tokens
        found.append(Request(conversation, *size, arrival=request.arrival))
    return found


def mixed(shared):
    """Prompts of all lengths at random times, some of which begin alike."""
    rng = random.Random(5)
    at = 0.0
    for _ in range(80):
        num_shared = rng.choice((0, 100)) if shared else 0
        output = rng.randint(1, 90)
        yield scheduling.Request(
            num_shared + rng.randint(1, 600), output, output, at, num_shared_tokens=num_shared
        )
        at += rng.expovariate(12)


BOUNDED = {"max_step_seconds": 0.1, "prefill_chunk_size": None}


def late(clock, requests):
    """The last request a millisecond later: not at the very end of a step."""
    *others, last = requests
    return clock, [*others, replace(last, arrival=last.arrival + 1e-3)]


LOADS = {
    "S2": many_prompts(replace(QWEN3_AMX, **BOUNDED)),
    "S5": late(*long_prompt(replace(GPT2, **BOUNDED))),
    "S5 in chunks": late(*long_prompt(GPT2)),
    "mixed": (replace(QWEN3_AMX, **BOUNDED), list(mixed(shared=False))),
    "shared": (replace(QWEN3_AMX, **BOUNDED), list(mixed(shared=True))),
    "attention": (replace(QWEN3_AMX, **BOUNDED, keys_per_row=300), list(mixed(shared=True))),
    "no bound": (replace(GPT2, prefill_chunk_size=None), list(mixed(shared=True))),
    "few seats": (replace(GPT2, max_num_seqs=9), list(mixed(shared=True))),
}


@pytest.mark.parametrize("name", LOADS)
def test_every_first_token_comes_when_the_scheduler_of_the_engine_gives_it(name):
    clock, requests = LOADS[name]
    outcome = simulate(clock, requests)
    simulated = requests_of(requests)
    replica = replica_of(clock)
    run(replica, [(request, request.arrival) for request in simulated])
    found = [request.first_token - request.arrival for request in simulated]
    expected = [outcome.first_token[i] for i in range(len(requests))]
    assert found == pytest.approx(expected, abs=1e-6)
    assert max(request.end for request in simulated) == pytest.approx(outcome.seconds)
    assert replica.num_steps == outcome.num_steps
    assert replica.num_prompt_tokens + replica.num_sampled == (
        outcome.num_computed_tokens + len(requests)
    )


def test_one_request_by_hand():
    """Steps of 1 s and 0.1 s a token: the prompt of 20 takes 3 s, each further token 1.1 s."""
    clock = scheduling.Machine(1000, step_seconds=1, token_seconds=0.1)
    replica = replica_of(clock)
    request = Request(Prompt(0, 0), 20, 5, arrival=2.0)
    run(replica, [(request, 2.0)])
    assert request.first_token == pytest.approx(5.0)
    assert request.end == pytest.approx(5.0 + 4 * 1.1)
    assert request.tpot == pytest.approx(1.1)


def test_a_request_joins_after_the_step_in_progress():
    """The first one's second token comes at 4.1; both compute from then on."""
    clock = scheduling.Machine(1000, step_seconds=1, token_seconds=0.1, max_step_seconds=None)
    replica = replica_of(clock, prefill_chunk_size=None)
    first, second = (Request(Prompt(0, 0, kind=i), 20, 50, arrival=0.0) for i in range(2))
    run(replica, [(first, 0.0), (second, 3.5)])
    assert second.first_token == pytest.approx(4.1 + 1 + 0.1 * 21)


def test_a_request_waits_for_blocks():
    """Room for 4 blocks of 16; each request holds 3 to its end."""
    clock = scheduling.Machine(64, step_seconds=1, token_seconds=0)
    replica = replica_of(clock)
    first, second = (Request(Prompt(0, 0, kind=i), 40, 5, arrival=0.0) for i in range(2))
    run(replica, [(first, 0.0), (second, 0.0)])
    assert (first.first_token, first.end) == (1, 5)
    assert (second.first_token, second.end) == (6, 10)
    with pytest.raises(ValueError, match="does not fit"):
        replica.arrive(Request(Prompt(0, 0), 60, 10, arrival=0.0), 20.0)
