import os
import socket

import pytest

from server.connections import gate as module
from server.connections.gate import Gate
from tests.support.clock import Clock

LIMIT = 4


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def gate(clock):
    return Gate(LIMIT, clock=clock)


@pytest.fixture
def silent():
    """A descriptor without unread bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours.fileno()


def enter(gate, fileno, ended=None, name=None):
    assert gate.has_room()
    place = gate.enter(fileno)
    if ended is not None:
        place.wait(lambda: ended.append(name))
    return place


def test_places_are_counted_until_they_are_left(gate, silent):
    places = [enter(gate, silent) for _ in range(3)]
    assert gate.num_open == 3
    for _ in range(2):
        places[0].leave()
    assert gate.num_open == 2


def test_the_oldest_that_waits_is_ended_for_a_new_one(gate, clock, silent):
    ended = []
    places = [enter(gate, silent, ended, name) for name in range(LIMIT)]
    clock.now = 1.0
    places[0].stop_waiting()  # has a request
    places[1].wait(lambda: ended.append(1))  # is the youngest now
    clock.now = 2.0
    enter(gate, silent)
    assert ended == [2]


def test_one_that_came_just_now_is_kept(gate, clock, silent):
    ended = []
    for name in range(LIMIT):
        enter(gate, silent, ended, name)
    clock.now = module.MIN_AGE / 2
    enter(gate, silent)
    assert ended == []
    clock.now = module.MIN_AGE
    assert gate.seconds_to_room() > 0
    enter(gate, silent)
    assert ended == [0]


def test_one_with_unread_bytes_is_kept(gate, clock, silent):
    ended = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"G")
        enter(gate, ours.fileno(), ended, "written")
        for name in range(LIMIT - 1):
            enter(gate, silent, ended, name)
        clock.now = 1.0
        enter(gate, silent)
        assert ended == [0]


def test_above_the_limit_requests_are_refused_and_then_there_is_no_room(gate, silent):
    places = []
    for number in range(LIMIT + module.NUM_SPARE):
        places.append(enter(gate, silent, []))
        places[-1].stop_waiting()
        assert places[-1].is_above_limit == (number >= LIMIT)
    assert not gate.has_room()
    rooms = []
    gate.on_room = lambda: rooms.append(gate.num_open)
    places[0].leave()
    assert rooms == [LIMIT + module.NUM_SPARE - 1]
    assert gate.has_room()


def test_silent_connections_keep_no_request_from_being_served(gate, silent):
    places = [enter(gate, silent, []) for _ in range(LIMIT + module.NUM_SPARE)]
    places[-1].stop_waiting()
    assert not places[-1].is_above_limit


def test_when_there_is_no_room_the_oldest_makes_some(gate, clock, silent):
    ended = []
    for name in range(LIMIT + module.NUM_SPARE):
        enter(gate, silent, ended, name)
    assert not gate.has_room()
    assert ended == []
    clock.now = 1.0
    assert not gate.has_room()
    assert ended == [0]


def test_an_ended_one_counts_as_a_descriptor_until_it_is_left(gate, clock, silent):
    ended = []
    places = [enter(gate, silent, ended, name) for name in range(LIMIT)]
    clock.now = 1.0
    enter(gate, silent)
    assert gate.num_open == LIMIT + 1
    places[0].leave()
    assert gate.num_open == LIMIT
    assert ended == [0]
    enter(gate, silent)
    assert ended == [0, 1]


def test_an_ended_one_takes_no_place_from_others(gate, clock, silent):
    ended = []
    places = [enter(gate, silent, ended, name) for name in range(LIMIT)]
    clock.now = 1.0
    enter(gate, silent)
    assert ended == [0]
    places[1].leave()
    enter(gate, silent)
    assert ended == [0]


def test_a_condition_is_logged_once_in_a_while(gate, clock, silent, caplog):
    places = [enter(gate, silent) for _ in range(LIMIT + 1)]
    assert all(place.is_above_limit for place in places)
    assert len(caplog.records) == 1
    assert f"All {LIMIT} connections" in caplog.text
    clock.now = module.LOG_INTERVAL
    assert places[0].is_above_limit
    assert len(caplog.records) == 2


def test_unread_bytes_are_seen():
    read, write = os.pipe()
    assert not module.has_unread_bytes(read)
    os.write(write, b"x")
    assert module.has_unread_bytes(read)
    os.close(read)
    os.close(write)
