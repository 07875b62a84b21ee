"""Which of several equal servers gets a request."""

import contextlib
import os

import pytest

from server.client.answer import Address
from server.router.upstream import FIRST_PAUSE, MAX_FAILURES, Upstream, choose


@pytest.fixture
def servers():
    return [Upstream(Address("h", port)) for port in range(4)]


@pytest.fixture
def load():
    """Give a server open requests."""
    with contextlib.ExitStack() as stack:

        def give(upstream, number):
            for _ in range(number):
                stack.enter_context(upstream.opened(0.0))

        yield give


def fail(upstream, now, times=MAX_FAILURES):
    for _ in range(times):
        upstream.failed(now)


def test_the_least_loaded_gets_the_next_one_and_equals_take_turns(servers, load):
    load(servers[0], 1)
    chosen = []
    for _ in range(6):
        upstream = choose(servers, b"", 0.0)
        load(upstream, 1)
        chosen.append(upstream)
    assert set(chosen[:3]) == set(servers[1:])
    assert max(upstream.num_open for upstream in servers) == 2


def test_idle_servers_take_turns(servers):
    chosen = []
    for _ in range(2 * len(servers)):
        chosen.append(choose(servers, b"", 0.0))
        with chosen[-1].opened(0.0):
            pass
    assert chosen == servers * 2


def test_a_conversation_stays_until_its_server_has_too_much(servers, load):
    key = os.urandom(16)
    own = choose(servers, key, 0.0)
    assert all(choose(servers, key, 0.0) is own for _ in range(5))
    others = [upstream for upstream in servers if upstream is not own]
    load(own, 2)
    assert choose(servers, key, 0.0) is not own
    for upstream in others:
        load(upstream, 2)
    assert choose(servers, key, 0.0) is own


def test_conversations_spread_and_few_move_when_a_server_goes(servers):
    keys = [os.urandom(16) for _ in range(2000)]
    before = {key: choose(servers, key, 0.0) for key in keys}
    for upstream in servers:
        assert 350 < sum(place is upstream for place in before.values()) < 650
    left = servers[1:]
    moved = [key for key in keys if choose(left, key, 0.0) is not before[key]]
    assert all(before[key] is servers[0] for key in moved)


def test_a_server_that_fails_pauses_and_is_tried_by_one_request(servers):
    bad, good = servers[:2]
    fail(bad, 10.0)
    assert not bad.is_available(10.0)
    assert all(choose([bad, good], b"", 10.0) is good for _ in range(5))
    late = 10.0 + FIRST_PAUSE
    chosen = [choose([bad, good], b"", late) for _ in range(6)]
    assert chosen.count(bad) <= 1
    bad.answered()
    assert bad.is_available(10.0)


def test_pauses_grow_to_a_limit(servers):
    bad = servers[0]
    fail(bad, 0.0, times=40)
    assert not bad.is_available(29.0)
    assert bad.is_available(31.0)


def test_if_all_fail_every_request_still_tries_one(servers):
    for upstream in servers:
        fail(upstream, 0.0, times=20)
        upstream.is_stalled = True
    for key in (b"", b"k" * 16):
        assert choose(servers, key, 0.0) in servers


def test_a_stalled_server_comes_last_until_it_sends_something(servers):
    stalled, well = servers[:2]
    stalled.is_stalled = True
    assert all(choose([stalled, well], b"", 0.0) is well for _ in range(4))
    stalled.heard(1.0)
    assert stalled in {choose([stalled, well], b"", 1.0) for _ in range(4)}


def test_what_was_tried_is_not_tried_again(servers):
    tried = []
    while upstream := choose(servers, b"k" * 16, 0.0, tried):
        tried.append(upstream)
    assert sorted(map(id, tried)) == sorted(map(id, servers))
