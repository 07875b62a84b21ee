import pytest

from server.admission.budget import MAX_TENANTS, RateLimiter
from server.http.errors import APIError
from server.settings.types import Rates
from tests.support.clock import Clock


@pytest.fixture
def clock():
    return Clock(1000.0)


def refused(limiter, tenant="a"):
    with pytest.raises(APIError) as caught:
        limiter.admit(tenant)
    assert caught.value.status == 429
    assert caught.value.error.code == "rate_limit_exceeded"
    return caught.value


def test_without_rates_it_is_off():
    assert not RateLimiter(Rates())
    assert RateLimiter(Rates(tokens=1))


def test_requests_of_a_minute(clock):
    limiter = RateLimiter(Rates(requests=6), clock=clock)
    for _ in range(6):
        limiter.admit("a")
    error = refused(limiter)
    assert error.error.type == "requests"
    assert error.headers["retry-after"] == "10"
    assert error.headers["x-ratelimit-remaining-requests"] == "0"
    limiter.admit("b")  # another tenant has buckets of its own
    clock.now += 10
    limiter.admit("a")
    refused(limiter)
    clock.now += 3600
    for _ in range(6):  # a bucket holds a minute's worth at most
        limiter.admit("a")
    refused(limiter)


def test_tokens_may_be_overdrawn_once_and_are_paid_by_waiting(clock):
    limiter = RateLimiter(Rates(tokens=60), clock=clock)
    limiter.admit("a")
    limiter.charge("a", 100)
    error = refused(limiter)
    assert (error.error.type, error.headers["retry-after"]) == ("tokens", "41")
    clock.now += 41
    limiter.admit("a")


def test_headers(clock):
    limiter = RateLimiter(Rates(requests=60, tokens=6000), clock=clock)
    limiter.admit("a")
    limiter.charge("a", 1500)
    assert limiter.headers("a") == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1.00s",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "4500",
        "x-ratelimit-reset-tokens": "15.00s",
    }
    limiter.charge("a", 10_000)
    assert limiter.headers("a")["x-ratelimit-remaining-tokens"] == "0"
    assert limiter.headers("a")["x-ratelimit-reset-tokens"] == "1m55s"


def test_tenants_with_full_buckets_are_forgotten(clock):
    limiter = RateLimiter(Rates(requests=60), clock=clock)
    for number in range(3 * MAX_TENANTS):
        clock.now += 0.1
        limiter.admit(str(number))
    assert len(limiter._levels) <= MAX_TENANTS


def test_many_tenants_without_full_buckets_are_searched_seldom(clock, monkeypatch):
    searched = []
    forget_full = RateLimiter._forget_full

    def counting(self, now):
        searched.append(len(self._levels))
        forget_full(self, now)

    monkeypatch.setattr(RateLimiter, "_forget_full", counting)
    limiter = RateLimiter(Rates(requests=1), clock=clock)
    for number in range(3 * MAX_TENANTS):
        limiter.admit(str(number))
    assert searched == [MAX_TENANTS, 2 * MAX_TENANTS]
    refused(limiter, "0")  # none of them is forgotten
    clock.now += 3600
    for number in range(MAX_TENANTS + 1):
        limiter.admit(f"later {number}")
    assert len(limiter._levels) == MAX_TENANTS + 1
