"""Equal shares of a budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.scheduler.debts import equal_shares


@pytest.mark.parametrize(
    ("demands", "budget", "shares"),
    [
        ([100], 30, [30]),
        ([100, 100], 30, [15, 15]),
        ([100, 4, 100], 30, [13, 4, 13]),
        ([2, 3], 30, [2, 3]),
        ([100, 100], 31, [15, 16]),
        ([5, 5, 5], 2, [0, 1, 1]),
    ],
)
def test_examples(demands, budget, shares):
    assert equal_shares(demands, budget) == shares


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 200))
def test_all_of_the_budget_is_divided_equally(demands, budget):
    shares = equal_shares(demands, budget)
    assert sum(shares) == min(budget, sum(demands))
    short = [share for share, demand in zip(shares, demands, strict=True) if share < demand]
    assert all(share <= demand for share, demand in zip(shares, demands, strict=True))
    if short:
        assert max(shares) - min(short) <= 1
