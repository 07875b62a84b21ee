"""The policies beside the router's own choice."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack

import pytest

from benchmarks.fleet.policies import BoundedHash, LeastLoaded, place, policy_of
from server.client.answer import Address
from server.router.upstream import LOAD_BOUND, Upstream, choose


class Placed(Upstream):
    """An upstream whose rank for a conversation is that of the simulation."""

    def __init__(self, number, num_replicas):
        super().__init__(Address(host=str(number)))
        self.number, self.num_replicas = number, num_replicas

    def rank(self, key):
        index = 0
        while place(int.from_bytes(key), index, self.num_replicas) != self.number:
            index += 1
        return index.to_bytes(4)


@pytest.mark.parametrize("has_keys", [True, False])
def test_the_choice_is_that_of_the_router(has_keys):
    rng = random.Random(3)
    number = 7
    policy = BoundedHash(number) if has_keys else LeastLoaded(number)
    upstreams = [Placed(i, number) for i in range(number)]
    running, spilled = [], 0
    for _ in range(3000):
        if running and rng.random() < 0.48:
            chosen, opened = running.pop(rng.randrange(len(running)))
            policy.closed(chosen)
            opened.close()
            continue
        key = rng.randrange(1, 20)
        chosen = policy.choose(key)
        found = choose(upstreams, key.to_bytes(8) if has_keys else b"", 0.0)
        assert found is upstreams[chosen]
        policy.opened(chosen)
        opened = ExitStack()
        opened.enter_context(found.opened(0.0))
        running.append((chosen, opened))
        spilled += has_keys and chosen != place(key, 0, number)
    assert spilled > 100 or not has_keys


def test_round_robin_and_the_session_hash():
    turns = policy_of("round-robin")(3)
    assert [turns.choose(9) for _ in range(5)] == [0, 1, 2, 0, 1]
    hashed = policy_of("session-hash")(50)
    counts = Counter(hashed.choose(key) for key in range(10_000))
    assert len(counts) == 50
    assert max(counts.values()) < 280
    assert hashed.choose(77) == hashed.choose(77)


def test_the_bound_of_a_name():
    assert policy_of("bounded")(2).bound == LOAD_BOUND
    assert policy_of("bounded-2")(2).bound == 2
    assert policy_of("bounded-1.5+8")(2).least == 8
    for name in ("bounded-0.9", "fastest", "bounded-x"):
        with pytest.raises(ValueError, match=r"bound|policy|convert"):
            policy_of(name)


def test_a_replica_may_always_have_the_least():
    policy = policy_of("bounded-1+3")(4)
    own = place(77, 0, 4)
    for _ in range(3):
        assert policy.choose(77) == own
        policy.opened(own)
    assert policy.choose(77) != own
