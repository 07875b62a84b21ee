import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.contract.errors import InvalidRequest, QueueFull
from server.admission.budget import (
    MAX_RETRY_AFTER,
    MIN_RETRY_AFTER,
    RESERVE_SHARE,
    Budget,
    HeldBody,
)
from server.http.errors import APIError
from tests.support.clock import Clock


@pytest.fixture
def clock():
    return Clock()


def make(limit, clock=None, **options):
    words = {"full": "full", "never": "{} asked", "param": "n"}
    return Budget(limit, **words, clock=clock or Clock(), **options)


def test_one_tenant_alone_may_hold_the_limit():
    budget = make(8)
    budget.take("a", 5)
    budget.take("a", 3)
    with pytest.raises(QueueFull, match="full"):
        budget.take("a", 1)
    assert budget.held == 8
    budget.give_back("a", 1)
    budget.take("a", 1)


def test_what_is_there_already_counts_beyond_the_limit():
    budget = make(8)
    budget.add("a", 20)
    budget.add("b", 0)
    assert budget.held == 20
    for tenant in "ab":
        with pytest.raises(QueueFull):
            budget.take(tenant, 1)
    budget.give_back("a", 20)
    budget.take("b", 8)
    assert budget.held == 8


def test_what_never_fits_has_both_numbers():
    budget = make(8)
    budget.check_possible(8)
    with pytest.raises(InvalidRequest, match="9 asked; the server takes at most 8") as caught:
        budget.check_possible(9)
    assert caught.value.param == "n"


def test_a_tenant_that_fills_the_budget_shuts_only_itself_out():
    budget = make(100)
    budget.take("greedy", 100)
    with pytest.raises(QueueFull):
        budget.take("greedy", 1)
    for _ in range(100 // RESERVE_SHARE):
        budget.take("modest", 1)
    with pytest.raises(QueueFull):  # the reserve is finite, so memory is
        budget.take("third", 1)


def test_a_tenant_may_be_held_to_less_than_the_limit():
    budget = make(100, most_each=50)
    budget.take("a", 50)
    with pytest.raises(QueueFull):
        budget.take("a", 1)
    budget.take("b", 50)
    with pytest.raises(QueueFull):  # the reserve is not for it
        budget.take("b", 1)
    budget.take("c", 100 // RESERVE_SHARE)


def test_the_reserve_ends_at_an_equal_share():
    budget = make(100)
    budget.take("a", 90)
    budget.take("b", 10)
    for _ in range(4):
        budget.take(f"c{_}", 5)
    with pytest.raises(QueueFull):
        budget.take("b", 10)  # 20 of 6 tenants' 100 / 6
    budget.take("b", 5)


class TestRetryAfter:
    def test_is_the_least_before_anything_was_measured(self):
        assert make(1).retry_after(1) == MIN_RETRY_AFTER

    def test_follows_the_rate_of_what_is_given_back(self, clock):
        budget = make(100, clock)
        budget.take("a", 100)
        for _ in range(60):  # 2 a second
            clock.now += 0.5
            budget.give_back("a", 1)
            budget.take("a", 1)
        assert budget.retry_after(1) == 1
        assert budget.retry_after(20) == pytest.approx(10, abs=1)

    def test_is_bounded_when_nothing_moves(self, clock):
        budget = make(10, clock)
        budget.take("a", 10)
        clock.now = 1.0
        budget.give_back("a", 1)
        budget.take("a", 1)
        clock.now = 10_000.0
        with pytest.raises(QueueFull) as caught:
            budget.take("a", 1)
        assert caught.value.retry_after == MAX_RETRY_AFTER


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 20), st.booleans()), max_size=60),
)
def test_never_more_than_limit_and_reserve_and_nothing_is_lost(limit, moves):
    budget = make(limit)
    holdings = []
    for tenant, amount, is_taken in moves:
        if is_taken:
            fits = budget.held + amount <= limit
            try:
                budget.take(tenant, amount)
            except QueueFull:
                assert not fits  # work conserving
            else:
                holdings.append((tenant, amount))
        elif holdings:
            budget.give_back(*holdings.pop(0))
        assert budget.held == sum(amount for _, amount in holdings)
        assert budget.held <= limit + limit // RESERVE_SHARE
    for holding in holdings:
        budget.give_back(*holding)
    assert budget.held == 0
    budget.take("a", limit)


def test_a_body_holds_its_part_until_it_is_released():
    budget = make(100)
    body = HeldBody(budget, "a", most=10)
    body.take(6)
    with pytest.raises(APIError, match="large"):
        body.take(5)
    body.take(4)
    body.data = b"x" * 10
    assert budget.held == 10
    body.release()
    body.release()
    assert (budget.held, body.data) == (0, b"")
