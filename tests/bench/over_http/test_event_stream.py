from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.over_http.event_stream import EventStreamParser

STREAM = (
    b": hello\n\ndata: one\n\nevent: x\ndata:two\ndata: lines\nid: 3\n\n"
    b"data: three\r\n\r\n\n\ndata\n\n"
)
EVENTS = [b"one", b"two\nlines", b"three"]


def parse(*chunks):
    parser = EventStreamParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_events_are_parsed():
    assert parse(STREAM) == EVENTS


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_cuts_do_not_change_the_events(cuts):
    edges = [0, *sorted(cuts), len(STREAM)]
    assert parse(*(STREAM[a:b] for a, b in pairwise(edges))) == EVENTS


def test_an_event_is_returned_with_the_bytes_that_end_it():
    parser = EventStreamParser()
    assert parser.feed(b"data: x\n") == []
    assert parser.feed(b"\ndata: y") == [b"x"]
    assert parser.feed(b"\r\n\r") == []
    assert parser.feed(b"\n") == [b"y"]


def test_an_unfinished_event_is_dropped():
    assert parse(b"data: x\n") == []


@pytest.mark.parametrize("space", [b"", b" "])
def test_one_space_after_the_colon_is_dropped(space):
    assert parse(b"data:" + space + b" x\n\n") == ([b" x"] if space else [b"x"])
