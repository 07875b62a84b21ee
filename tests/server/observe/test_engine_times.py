"""Where the time of a request in the engine went, from what its choices tell."""

import pytest

from core.contract.messages import Work
from server.observe.trace import engine_times


def times(*works, submitted=10.0, now=20.0):
    found = engine_times(works, submitted, now)
    assert found.queue + found.prefill + found.decode + now - found.until == pytest.approx(
        now - submitted
    ), "every second has its place"
    return found


def test_of_one_choice():
    found = times(Work(started_at=11.0, first_token_at=13.0, until=18.0))
    assert (found.queue, found.prefill, found.decode) == (1.0, 2.0, 5.0)
    assert (found.first_token_at, found.until) == (13.0, 18.0)


def test_one_that_the_engine_has_not_got_waits():
    found = times(None)
    assert (found.queue, found.prefill, found.decode, found.until) == (10.0, 0.0, 0.0, 20.0)


def test_one_that_has_not_started_waits():
    found = times(Work(until=19.0))
    assert (found.queue, found.prefill, found.decode) == (9.0, 0.0, 0.0)
    assert found.first_token_at is None


def test_one_without_a_token_prefills():
    found = times(Work(started_at=12.0, until=19.0))
    assert (found.queue, found.prefill, found.decode) == (2.0, 7.0, 0.0)


def test_waits_after_preemptions_are_waits():
    work = Work(
        started_at=11.0, first_token_at=14.0, until=19.0, waited=3.5, waited_before_first=1.5
    )
    found = times(work)
    assert (found.queue, found.prefill, found.decode) == (4.5, 1.5, 3.0)


def test_choices_overlap():
    found = times(
        Work(started_at=11.0, first_token_at=13.0, until=15.0, waited=1.0),
        Work(started_at=12.0, first_token_at=12.5, until=19.0),
        None,
    )
    assert (found.queue, found.prefill, found.decode) == (1.0, 1.5, 6.5)
    assert (found.first_token_at, found.until) == (12.5, 19.0)


def test_no_time_is_before_the_submission_or_after_now():
    found = times(Work(started_at=9.0, first_token_at=9.5, until=9.9))
    assert (found.queue, found.prefill, found.decode, found.until) == (0.0, 0.0, 0.0, 10.0)
    assert times(Work(started_at=11.0, until=25.0)).until == 20.0
