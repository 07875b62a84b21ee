"""Conversations, policies and replicas on one clock."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from benchmarks.fleet.conversations import Load
from benchmarks.fleet.machine import Machine, Step
from benchmarks.fleet.policies import policy_of
from benchmarks.fleet.simulate import Fleet, Goal, Span

POLICIES = ("round-robin", "least-loaded", "session-hash", "bounded", "bounded-1")
MACHINE = Machine(
    name="a line",
    source="by hand",
    steps=(
        Step(streams=1, ms=20),
        Step(streams=64, ms=50),
        Step(streams=1, context=10_000, ms=30),
        Step(prompt=64, ms=55),
        Step(prompt=512, ms=300),
        Step(prompt=512, start=4096, ms=400),
    ),
    stream_knots=(1, 64),
    prompt_knots=(64, 512),
    kv_tokens=40_000,
    max_model_len=8192,
    max_step_ms=100,
    keys_per_row=None,
    request_ms=5,
)
LOAD = Load(rate=0.4, system=640, kinds=5, max_model_len=8192)
SPAN = Span(warm_up=60, measured=180)


def run(policy, number, *, load=LOAD, seed=0, machine=MACHINE):
    fleet = Fleet(machine, policy_of(policy), number)
    return fleet, fleet.run(load.conversations(seed), SPAN)


def trace(outcome):
    return [(r.arrival, r.first_token, r.end, r.num_cached, r.replica) for r in outcome.requests]


def test_with_one_replica_all_policies_agree():
    traces = [trace(run(policy, 1, load=replace(LOAD, burst=1))[1]) for policy in POLICIES]
    assert len(traces[0]) > 50
    assert all(each == traces[0] for each in traces)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_token_is_lost(policy):
    """What was asked for was computed or cached, and what was sampled is the answers."""
    fleet = Fleet(MACHINE, policy_of(policy), 4)
    outcome = fleet.run(LOAD.conversations(0), replace(SPAN, warm_up=0.0))
    requests = outcome.requests
    assert len(requests) == sum(outcome.by_replica) > 200
    computed = sum(replica.num_prompt_tokens for replica in fleet.replicas)
    assert computed == sum(r.num_prompt - r.num_cached for r in requests)
    assert sum(replica.num_sampled for replica in fleet.replicas) == sum(
        r.num_output for r in requests
    )
    assert all(0 <= r.num_cached < r.num_prompt for r in requests)
    assert all(r.arrival < r.first_token <= r.end for r in requests)
    assert fleet.policy.num_all == 0
    for replica in fleet.replicas:
        assert (replica.num_running, replica.num_waiting, replica.cache.num_used) == (0, 0, 0)
        replica.cache.check()


def test_the_same_seed_gives_the_same_and_another_one_another():
    assert trace(run("bounded", 3)[1]) == trace(run("bounded", 3)[1])
    assert trace(run("bounded", 3)[1]) != trace(run("bounded", 3, seed=1)[1])


def test_conversations_do_not_depend_on_the_policy():
    asked = [
        sorted((r.conversation.key, r.num_prompt, r.num_output) for r in run(policy, 4)[1].requests)
        for policy in ("session-hash", "bounded")
    ]
    common = set(asked[0]) & set(asked[1])
    assert len(common) > 0.9 * len(asked[0])


def test_conversations_begin_in_order_and_grow():
    begun = list(islice(LOAD.conversations(0), 400))
    assert [at for at, _ in begun] == sorted(at for at, _ in begun)
    assert begun[-1][0] / 400 == pytest.approx(1 / LOAD.rate, rel=0.5)
    grown = 0
    for _, conversation in begun:
        before = conversation.num_shared
        while turn := conversation.next_turn():
            num_prompt, num_output = turn
            assert before < num_prompt <= LOAD.max_model_len - num_output
            before, grown = num_prompt + num_output, grown + 1
    assert grown / 400 == pytest.approx(LOAD.turns, rel=0.2)


def test_bursts_of_one_first_message_have_one_key():
    load = replace(LOAD, alike=1.0)
    keys = [conversation.key for _, conversation in islice(load.conversations(0), 400)]
    assert 20 < len(set(keys)) < 100  # bursts of 8
    assert len({c.key for _, c in islice(LOAD.conversations(0), 400)}) == 400
    outcomes = [run(policy, 8, load=load)[1] for policy in ("session-hash", "bounded")]
    most = [max(outcome.by_replica) / sum(outcome.by_replica) for outcome in outcomes]
    assert most[0] > 1.2 * most[1]


def test_affinity_finds_what_a_conversation_said_before():
    """Of the policies that are blind to it, most turns meet a replica that has only the system
    prompt."""
    rates = {policy: run(policy, 8)[1].hit_rate for policy in POLICIES}
    assert rates["session-hash"] > rates["least-loaded"] + 0.1
    assert rates["session-hash"] > rates["round-robin"] + 0.1
    assert rates["session-hash"] >= rates["bounded"] > rates["least-loaded"] + 0.05


def test_a_bound_keeps_replicas_from_getting_too_much():
    most = {p: max(run(p, 8)[1].by_replica) for p in ("session-hash", "bounded-1")}
    assert most["session-hash"] > 1.1 * most["bounded-1"]


def test_goodput_counts_requests_that_meet_both_goals():
    outcome = run("bounded", 4)[1]
    assert outcome.num_good(Goal(ttft=1e9, tpot=1e9)) == len(outcome.requests)
    assert outcome.num_good(Goal(ttft=0, tpot=1e9)) == 0
    assert outcome.num_good(Goal(ttft=1e9, tpot=0.021)) < len(outcome.requests)
    half = Goal(ttft=outcome.ttft(50), tpot=1e9)
    assert outcome.num_good(half) == pytest.approx(len(outcome.requests) / 2, abs=1)
