import pytest

from bench.settings import Pace
from bench.timetable import Timetable


def dues(pace, num=4, took=0.5, seed="s"):
    """When requests are due if each submission takes ``took`` seconds."""
    timetable = Timetable(pace, num, seed)
    found, last = [], 100.0
    for index in range(num):
        due = timetable.due(index, start=100.0, last=last)
        found.append(due - 100)
        last = max(due, last) + took
    return found


def test_by_default_all_requests_are_due_at_once():
    assert dues(Pace()) == [0, 0, 0, 0]


def test_absolute_times_do_not_drift():
    assert dues(Pace(interval=2.0)) == [0, 2, 4, 6]


def test_relative_times_begin_at_the_end_of_the_last_submission():
    assert dues(Pace(interval=2.0, schedule="relative")) == [0, 2.5, 5, 7.5]


def test_random_arrivals_have_the_rate_and_are_repeatable():
    found = dues(Pace(rate=10.0), num=2000)
    assert found[0] == 0
    assert found == sorted(found)
    assert found[-1] / 1999 == pytest.approx(0.1, rel=0.1)
    assert dues(Pace(rate=10.0)) == dues(Pace(rate=10.0))
    assert dues(Pace(rate=10.0), seed="t") != dues(Pace(rate=10.0))


def test_a_closed_loop_has_no_times():
    assert Timetable(Pace(concurrency=2), 3, "s").is_closed
    assert not Timetable(Pace(concurrency=2, interval=1.0), 3, "s").is_closed
    assert not Timetable(Pace(), 3, "s").is_closed
