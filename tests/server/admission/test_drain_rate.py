import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.admission.budget import TIME_CONSTANT, DrainRate


def test_unknown_before_the_first_measurement():
    assert DrainRate().per_second(5.0) is None


@given(st.floats(0.05, TIME_CONSTANT / 5), st.integers(1, 1000))
def test_a_steady_rate_is_found_at_once_and_kept(interval, amount):
    rate = DrainRate()
    now = 0.0
    while now < 2 * TIME_CONSTANT:
        rate.add(amount, now)
        now += interval
    # between two measurements an exponential mean swings by the share that an interval decays
    swing = 1 + interval / TIME_CONSTANT
    found = rate.per_second(now)
    assert amount / interval / swing <= found <= amount / interval * swing


def test_it_decays_when_nothing_is_given_back():
    rate = DrainRate()
    for second in range(100):
        rate.add(10, float(second))
    assert rate.per_second(99.0) == pytest.approx(10, rel=0.1)
    assert rate.per_second(99.0 + 3 * TIME_CONSTANT) < 1
    assert rate.per_second(99.0 + 100 * TIME_CONSTANT) == pytest.approx(0, abs=1e-9)
