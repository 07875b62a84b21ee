import os
import resource
import socket
import subprocess
import sys

import pytest

from server.net import connection_limit as module
from server.net.connection_limit import ConnectionLimit, possible_connections
from tests.support.clock import Clock
from tests.support.source_tree import ROOT

LIMIT = 4

LEFT = 1024 - module.OTHER_DESCRIPTORS - module.RESERVE


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def limit(clock):
    return ConnectionLimit(LIMIT, clock=clock)


@pytest.fixture
def silent():
    """A descriptor without unread bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours.fileno()


def enter(limit, fileno, ended=None, name=None):
    assert limit.has_room()
    slot = limit.enter(fileno)
    if ended is not None:
        slot.wait(lambda: ended.append(name))
    return slot


def test_slots_are_counted_until_they_are_left(limit, silent):
    slots = [enter(limit, silent) for _ in range(3)]
    assert len(limit.open) == 3
    for _ in range(2):
        slots[0].leave()
    assert len(limit.open) == 2


def test_the_oldest_that_waits_is_ended_for_a_new_one(limit, clock, silent):
    ended = []
    slots = [enter(limit, silent, ended, name) for name in range(LIMIT)]
    clock.now = 1.0
    slots[0].stop_waiting()  # has a request
    slots[1].wait(lambda: ended.append(1))  # is the youngest now
    clock.now = 2.0
    enter(limit, silent)
    assert ended == [2]


def test_one_that_came_just_now_is_kept(limit, clock, silent):
    ended = []
    for name in range(LIMIT):
        enter(limit, silent, ended, name)
    clock.now = module.MIN_AGE / 2
    enter(limit, silent)
    assert ended == []
    clock.now = module.MIN_AGE
    enter(limit, silent)
    assert ended == [0]


def test_one_with_unread_bytes_is_kept(limit, clock, silent):
    ended = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"G")
        enter(limit, ours.fileno(), ended, "written")
        for name in range(LIMIT - 1):
            enter(limit, silent, ended, name)
        clock.now = 1.0
        enter(limit, silent)
        assert ended == []
        ours.recv(1)
        enter(limit, silent)
        assert ended == ["written"]


def test_above_the_limit_requests_are_refused_and_then_there_is_no_room(limit, silent):
    slots = []
    for number in range(LIMIT + module.RESERVE):
        slots.append(enter(limit, silent, []))
        slots[-1].stop_waiting()
        assert slots[-1].limit.is_exceeded == (number >= LIMIT)
    assert not limit.has_room()
    rooms = []
    limit.on_room = lambda: rooms.append(len(limit.open))
    slots[0].leave()
    assert rooms == [LIMIT + module.RESERVE - 1]
    assert limit.has_room()


def test_silent_connections_keep_no_request_from_being_served(limit, silent):
    slots = [enter(limit, silent, []) for _ in range(LIMIT + module.RESERVE)]
    slots[-1].stop_waiting()
    assert not slots[-1].limit.is_exceeded


def test_when_there_is_no_room_the_oldest_makes_some(limit, clock, silent):
    ended = []
    for name in range(LIMIT + module.RESERVE):
        enter(limit, silent, ended, name)
    assert not limit.has_room()
    assert ended == []
    clock.now = 1.0
    assert not limit.has_room()
    assert ended == [0]


def test_an_ended_one_counts_as_a_descriptor_until_it_is_left(limit, clock, silent):
    ended = []
    slots = [enter(limit, silent, ended, name) for name in range(LIMIT)]
    clock.now = 1.0
    enter(limit, silent)
    assert len(limit.open) == LIMIT + 1
    slots[0].leave()
    assert len(limit.open) == LIMIT
    assert ended == [0]
    enter(limit, silent)
    assert ended == [0, 1]


def test_an_ended_one_takes_no_slot_from_others(limit, clock, silent):
    ended = []
    slots = [enter(limit, silent, ended, name) for name in range(LIMIT)]
    clock.now = 1.0
    enter(limit, silent)
    assert ended == [0]
    slots[1].leave()
    enter(limit, silent)
    assert ended == [0]


def test_one_that_lingers_ends_when_the_reserve_is_used_up(limit, clock, silent):
    ended = []
    slots = [enter(limit, silent) for _ in range(LIMIT + module.RESERVE)]
    for name in (7, 3):
        slots[name].linger(lambda name=name: ended.append(name))
    assert not limit.has_room()
    assert ended == [7], "the oldest"
    slots[7].leave()
    slots[3].leave()
    assert limit.has_room()
    assert ended == [7]


def test_an_idle_one_ends_before_one_that_lingers(limit, clock, silent):
    ended = []
    slots = [enter(limit, silent) for _ in range(LIMIT + module.RESERVE)]
    slots[0].linger(lambda: ended.append("lingers"))
    slots[1].wait(lambda: ended.append("idle"))
    clock.now = module.MIN_AGE
    assert not limit.has_room()
    assert ended == ["idle"]


def test_a_condition_is_logged_once_in_a_while(limit, clock, silent, caplog):
    slots = [enter(limit, silent) for _ in range(LIMIT + 1)]
    assert all(slot.limit.is_exceeded for slot in slots)
    assert len(caplog.records) == 1
    assert f"All {LIMIT} connections" in caplog.text
    clock.now = module.LOG_INTERVAL
    assert slots[0].limit.is_exceeded
    assert len(caplog.records) == 2


def test_unread_bytes_are_seen():
    read, write = os.pipe()
    assert not module.has_unread_bytes(read)
    os.write(write, b"x")
    assert module.has_unread_bytes(read)
    os.close(read)
    os.close(write)


# Descriptors


RAISE = """
import resource
from server.net.connection_limit import raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200))
print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("descriptors", "expected"),
    [
        (sys.maxsize, 4096),
        (10**6, 4096),
        (1024, LEFT),
        (20, 8),
    ],
)
def test_connections_leave_descriptors_for_the_rest(descriptors, expected):
    assert possible_connections(4096, descriptors) == expected


def test_the_soft_limit_is_raised_to_the_hard_one():
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 200
    done = subprocess.run(  # noqa: S603 - this repository's own code
        [sys.executable, "-c", RAISE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["200", "200", "200"]


def test_connections_that_take_two_descriptors_are_half_as_many():
    assert possible_connections(4096, 1024, each=2) == LEFT // 2
    assert possible_connections(100, 1024, each=2) == 100
