"""Shelves: whose values stay, and that nothing of those that go is left."""

from __future__ import annotations

import random

import pytest

from server.tenants.shelves import Shelves, _Most
from tests.support.shelves import all_on, check_shelves


@pytest.fixture
def shelves() -> Shelves[str, str]:
    return Shelves(max_values=4, max_bytes=100)


def test_values_are_found_by_owner_and_key_and_newest_first(shelves):
    for name in ("x", "y", "z"):
        assert shelves.put("a", name, f"value of {name}", 1) == []
    assert shelves.get("a", "y") == "value of y"
    assert shelves.get("b", "y") is shelves.get("a", "?") is None
    assert list(shelves.newest_of("a")) == ["value of z", "value of y", "value of x"]
    assert list(shelves.newest_of("b")) == []
    assert shelves.pop("a", "y") == "value of y"
    assert shelves.pop("a", "y") is shelves.pop("b", "y") is None
    assert list(all_on(shelves)) == [("a", "value of x"), ("a", "value of z")]


def test_the_owner_of_the_most_gives_way_and_what_it_lost_is_returned(shelves):
    shelves.put("few", "0", "few's", 1)
    for number in range(3):
        shelves.put("many", str(number), f"many's {number}", 1)
    assert shelves.put("many", "3", "many's 3", 1) == [("many", "many's 0")]
    assert shelves.put("few", "1", "few's second", 95) == [("many", "many's 1")]
    assert shelves.put("third", "0", "third's", 90) == [
        ("few", "few's"),
        ("few", "few's second"),
    ]
    check_shelves(shelves)


def test_drawn_turns_keep_the_limits():
    draw = random.Random(3)
    shelves: Shelves[int, int] = Shelves(max_values=20, max_bytes=500)
    for turn in range(3000):
        owner = draw.choice("abc")
        if draw.random() < 0.3:
            shelves.pop(owner, draw.randrange(turn + 1))
        else:
            shelves.put(owner, turn, turn, draw.randrange(1, 120))
        check_shelves(shelves)
    assert sum(1 for _ in all_on(shelves)) > 3


def test_of_owners_with_as_much_the_one_whose_first_value_is_older_gives_way(shelves):
    for owner in ("d", "c", "b", "a"):
        shelves.put(owner, "0", owner, 1)
    assert shelves.put("0", "0", "0", 1) == [("d", "d")]


def test_the_most_is_that_of_a_search_through_all():
    draw = random.Random(4)
    most = _Most()
    amounts: dict[tuple[int, str], int] = {}
    for _ in range(5000):
        number = draw.randrange(30)
        who = number, f"owner {number}"
        amount = draw.choice((0, *range(9)))
        amounts[who] = amount
        most.set(*who, amount)
        if any(amounts.values()):
            assert most.owner() == max(amounts, key=lambda who: (amounts[who], -who[0]))[1]
        assert len(most._heap) <= 2 * 30 + 65
