"""FairQueue: who is next, and how far tenants get apart."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.scheduler.fair import NUM_REMEMBERED, FairQueue
from core.sequence import Sequence
from tests.support.builders import make_sequence


class Line:
    """A FairQueue whose sequences cost their prompt, and end on command."""

    def __init__(self) -> None:
        self.queue = FairQueue(lambda sequence: sequence.num_tokens)
        self.num_added = 0
        self.running: list[Sequence] = []
        self.service: Counter[str] = Counter()

    def add(self, tenant: str, cost: int = 1) -> Sequence:
        sequence = make_sequence([0] * cost, tenant=tenant, request_id=f"{tenant}{self.num_added}")
        sequence.arrival = self.num_added
        self.num_added += 1
        self.queue.add(sequence)
        return sequence

    def take(self) -> str:
        sequence = self.queue.head
        self.queue.take(sequence)
        self.running.append(sequence)
        self.service[sequence.request.tenant] += sequence.num_tokens
        return sequence.request.tenant

    def end(self, index: int = 0, num_tokens: int | None = None) -> None:
        sequence = self.running.pop(index)
        used = sequence.num_tokens if num_tokens is None else num_tokens
        self.queue.settle(sequence, used)

    def take_all(self) -> str:
        return "".join(self.take() for _ in range(len(self.queue)))

    def check_forgotten(self) -> None:
        while self.running:
            self.end()
        queue = self.queue
        assert len(queue) == 0
        assert not any((queue._tenants, queue._order, queue._charged, queue._idle))


def line(*costs: tuple[str, int]) -> Line:
    made = Line()
    for tenant, cost in costs:
        made.add(tenant, cost)
    return made


def test_one_tenant_is_served_in_order_of_arrival():
    made = Line()
    added = [made.add("a", cost) for cost in (5, 1, 9, 2)]
    assert list(made.queue) == added
    made.take_all()
    assert made.running == added


def test_tenants_take_turns():
    made = line(*[("a", 4)] * 6, *[("b", 4)] * 2, ("c", 4))
    assert made.take_all() == "abcabaaaa"


def test_turns_are_counted_in_tokens():
    made = line(*[("a", 30)] * 3, *[("b", 10)] * 9)
    assert made.take_all() == "abbbabbbabbb"


def test_a_tenant_that_comes_is_before_those_that_have_much_running():
    made = line(*[("a", 10)] * 500)
    for _ in range(8):
        made.take()
    made.add("b", 10)
    assert made.take() == "b"


def test_an_idle_tenant_saves_nothing_up():
    made = line(*[("a", 10)] * 100)
    for _ in range(90):
        made.take()
        made.end()
    for _ in range(10):
        made.add("b", 10)
    assert made.take_all() in ("ab" * 10, "ba" * 10)


def test_a_tenant_that_leaves_and_comes_back_is_not_new():
    made = line(*[("b", 10)] * 3, ("a", 10), *[("a", 10)] * 5)
    made.take()
    made.queue.remove(next(s for s in made.queue if s.request.tenant == "b"))
    made.queue.remove(next(s for s in made.queue if s.request.tenant == "b"))
    made.end()
    made.add("b", 10)
    assert made.take() == "a"


def test_a_tenant_pays_for_what_it_used():
    made = line(*[("a", 10)] * 3, *[("b", 10)] * 3)
    assert made.take() == "a"
    made.end(num_tokens=2)  # it stopped early
    assert made.take_all() == "babab"
    made = line(*[("a", 10)] * 3, *[("b", 10)] * 3)
    assert made.take() == "a"
    made.end(num_tokens=100)
    assert made.take_all() == "bbbaa"


def test_a_preempted_sequence_is_first_again_and_not_charged_twice():
    made = line(*[("a", 10)] * 3, *[("b", 10)] * 2)
    assert made.take() + made.take() == "ab"
    preempted = made.running.pop(0)
    made.queue.add(preempted)
    assert made.queue.head is preempted
    assert made.take_all() == "abaa"
    made.check_forgotten()


def test_a_preempted_sequence_that_ends_while_it_waits_pays_for_its_output():
    made = line(*[("a", 10)] * 2, ("b", 10), ("b", 10))
    made.take()
    preempted = made.running.pop()
    preempted.token_ids += [0] * 25
    made.queue.add(preempted)
    made.queue.remove(preempted)
    assert made.take_all() == "bba"
    made.check_forgotten()


def test_new_tenants_do_not_starve_one_that_waits():
    """Each comes with one request of 10 tokens; the tenant that waits is 100 tokens ahead."""
    made = line(("a", 100), ("a", 100))
    made.take()
    for i in range(21):
        made.add(f"new {i}", 10)
        if made.take() == "a":
            break
        made.end(1)
    assert made.service["a"] == 200


def test_tenants_that_the_clock_has_passed_are_forgotten():
    made = line(("a", 10), ("a", 10))
    made.take()
    for i in range(1000):
        made.add(f"new {i}", 1)
        made.add("a", 1)
        made.take()
        made.take()
        made.end(1)
        made.end(1)
    assert len(made.queue._idle) <= 2 * NUM_REMEMBERED
    assert len(made.queue._tenants) < 3


TENANTS = st.sampled_from("abcd")
COSTS = st.integers(1, 50)


@settings(deadline=None)
@given(st.data(), st.lists(st.tuples(TENANTS, COSTS), min_size=4, max_size=40))
def test_tenants_that_always_wait_get_equal_service(data, arrivals):
    """No two are further apart than the last sequence of the one that is ahead."""
    made = line(*zip("abcd", (1, 1, 1, 1), strict=True), *arrivals)
    last: dict[str, int] = {}
    while {s.request.tenant for s in made.queue} == set("abcd"):
        cost = made.queue.head.num_tokens
        tenant = made.take()
        last[tenant] = cost
        for other in "abcd":
            assert made.service[tenant] - made.service[other] <= cost
        while made.running and data.draw(st.booleans()):
            made.end(data.draw(st.integers(0, len(made.running) - 1)))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "take", "end", "preempt", "drop"]), TENANTS, COSTS),
        max_size=80,
    )
)
def test_any_traffic_keeps_the_order(changes):
    made = Line()
    waiting: list[Sequence] = []
    for change, tenant, number in changes:
        if change == "add":
            waiting.append(made.add(tenant, number))
        elif change == "take" and waiting:
            made.take()
            waiting.remove(made.running[-1])
        elif change == "end" and made.running:
            made.end(number % len(made.running), num_tokens=number)
        elif change == "preempt" and made.running:
            waiting.append(made.running.pop(number % len(made.running)))
            made.queue.add(waiting[-1])
        elif change == "drop" and waiting:
            made.queue.remove(waiting.pop(number % len(waiting)))
        queued = list(made.queue)
        assert len(queued) == len(made.queue)
        assert set(queued) == set(waiting)
        assert not queued or queued[0] is made.queue.head
        for name in "abcd":
            own = [s.arrival for s in queued if s.request.tenant == name]
            assert own == sorted(own)
    announced = list(made.queue)
    start = len(made.running)
    made.take_all()
    assert made.running[start:] == announced
    made.check_forgotten()


@pytest.mark.parametrize("num_tenants", [1, 100])
def test_a_change_costs_few_comparisons(num_tenants, monkeypatch):
    """10,000 sequences wait; a change looks at the places of some twenty of them."""
    num_calls = 0
    made = line(*((str(i % num_tenants), 1 + i % 7) for i in range(10_000)))

    def counted(sequence: Sequence) -> int:
        nonlocal num_calls
        num_calls += 1
        return sequence.arrival

    monkeypatch.setattr("core.scheduler.fair._place", counted)
    for _ in range(100):
        made.take()
        made.queue.remove(made.queue.head)
    assert num_calls < 100 * 2 * 20
