"""FairQueue: who is next, and how far tenants get apart."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.state.fair_queue import NUM_REMEMBERED, Entry, FairQueue, fair_entries
from core.state.sequence import Sequence
from tests.support.builders import make_sequence


class Line:
    """A FairQueue whose sequences cost their prompt, and end on command."""

    def __init__(self) -> None:
        self.num_places = 0
        self.queue = FairQueue(
            lambda sequence: sequence.num_tokens,
            tenant=lambda sequence: sequence.request.tenant,
            place=self.place,
        )
        self.num_added = 0
        self.running: list[Sequence] = []
        self.service: Counter[str] = Counter()

    def place(self, sequence: Sequence) -> tuple[int, int]:
        self.num_places += 1
        return sequence.request.priority, sequence.arrival

    def add(self, tenant: str, cost: int = 1, priority: int = 0) -> Sequence:
        name = f"{tenant}{self.num_added}"
        sequence = make_sequence([0] * cost, tenant=tenant, request_id=name, priority=priority)
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


def line(*requests: tuple[str, int] | tuple[str, int, int]) -> Line:
    """Requests are (tenant, cost) or (tenant, cost, priority)."""
    made = Line()
    for request in requests:
        made.add(*request)
    return made


def test_one_tenant_is_served_in_order_of_arrival():
    made = Line()
    added = [made.add("a", cost) for cost in (5, 1, 9, 2)]
    assert list(made.queue) == added
    made.take_all()
    assert made.running == added


def test_one_tenant_is_served_by_priority_then_arrival():
    made = Line()
    added = [made.add("a", 5, priority) for priority in (0, 3, -1, 0, -1000, 3)]
    assert list(made.queue) == [added[i] for i in (4, 2, 0, 3, 1, 5)]
    made.take()
    made.add("a", 5, -2)
    assert made.queue.head.request.priority == -2


def test_a_priority_does_not_pass_another_tenant():
    made = line(*[("a", 4, -1000)] * 6, *[("b", 4, 1000)] * 2, ("c", 4, 0))
    assert made.take_all() == "abcabaaaa"


def test_a_first_sequence_that_is_passed_by_its_tenants_next_one_costs_the_tenant_no_turn():
    made = line(("a", 4), ("b", 4))
    urgent = made.add("a", 4, -1)
    assert made.queue.head is urgent
    assert made.take_all() == "aba"


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


def test_a_preempted_sequence_waits_for_those_of_lower_priority_only():
    made = line(("a", 10, 5), ("a", 10, 5))
    made.take()
    first = made.add("a", 10, 4)
    preempted = made.running.pop()
    made.queue.add(preempted)
    later = next(s for s in made.queue if s not in (first, preempted))
    assert list(made.queue) == [first, preempted, later]
    made.take_all()
    made.check_forgotten()


def test_a_preempted_sequence_that_ends_while_it_waits_pays_for_its_output():
    made = line(*[("a", 10)] * 2, ("b", 10), ("b", 10))
    made.take()
    preempted = made.running.pop()
    preempted.token_ids += [0] * 25
    made.queue.add(preempted)
    made.queue.remove(preempted, 25)
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
PRIORITIES = st.integers(-3, 3)


@settings(deadline=None)
@given(st.data(), st.lists(st.tuples(TENANTS, COSTS, PRIORITIES), min_size=4, max_size=40))
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


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "add", "take", "end"]), TENANTS, PRIORITIES), max_size=60
    )
)
def test_priorities_change_nothing_between_tenants(changes):
    """With sequences of equal cost, the order of the tenants is that without priorities."""

    def tenants(scale: int) -> list[str]:
        made, order = Line(), []
        for change, tenant, number in changes:
            if change == "add":
                made.add(tenant, 10, priority=scale * number)
            elif change == "take" and len(made.queue):
                order.append(made.take())
            elif change == "end" and made.running:
                made.end(number % len(made.running), num_tokens=10 + number)
        return order + list(made.take_all())

    assert tenants(1) == tenants(0)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "take", "end", "preempt", "drop"]), TENANTS, COSTS, PRIORITIES
        ),
        max_size=80,
    )
)
def test_any_traffic_keeps_the_order(changes):
    made = Line()
    waiting: list[Sequence] = []
    for change, tenant, number, priority in changes:
        if change == "add":
            waiting.append(made.add(tenant, number, priority))
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
            own = [(s.request.priority, s.arrival) for s in queued if s.request.tenant == name]
            assert own == sorted(own)
    announced = list(made.queue)
    start = len(made.running)
    made.take_all()
    assert made.running[start:] == announced
    made.check_forgotten()


@pytest.mark.parametrize("num_tenants", [1, 100])
def test_a_change_costs_few_comparisons(num_tenants):
    """10,000 sequences wait; a change looks at the places of some twenty of them."""
    made = line(*((str(i % num_tenants), 1 + i % 7) for i in range(10_000)))
    made.num_places = 0
    for _ in range(100):
        made.take()
        made.queue.remove(made.queue.head)
    assert made.num_places < 100 * 2 * 20


# Entries, which cost what was expected


def push(
    queue: FairQueue[Entry[str]], value: str, cost: float = 1, priority: int = 0
) -> Entry[str]:
    """Add an entry, whose tenant is the first letter."""
    entry = Entry(value, value[0], cost, priority)
    queue.add(entry)
    return entry


def pop(queue: FairQueue[Entry[str]], num: int) -> list[str]:
    return [queue.pop().value for _ in range(num)]


def test_one_entry_of_another_passes_a_long_line():
    queue = fair_entries()
    for number in range(500):
        push(queue, f"g{number}", 100)
    pop(queue, 5)
    push(queue, "m", 100)
    assert "m" in pop(queue, 2)


def test_an_idle_tenant_saves_no_credit():
    queue = fair_entries()
    for number in range(10):
        push(queue, f"a{number}")
    pop(queue, 5)
    for number in range(10):
        push(queue, f"b{number}")
    assert [value[0] for value in pop(queue, 10)].count("b") <= 6


def test_what_was_discarded_is_not_served():
    queue = fair_entries()
    entries = [push(queue, value) for value in ("a0", "a1", "b0")]
    queue.discard(entries[0])
    queue.discard(entries[0])
    assert (len(queue), pop(queue, 2), len(queue)) == (2, ["a1", "b0"], 0)
    queue.discard(entries[1])


def test_entries_of_a_tenant_are_in_the_order_of_priorities():
    queue = fair_entries()
    for value, priority in (("a0", 0), ("a1", 5), ("a2", -5), ("a3", 0), ("a4", -5)):
        push(queue, value, priority=priority)
    assert pop(queue, 5) == ["a2", "a4", "a0", "a3", "a1"]


def test_a_priority_passes_no_other_tenant():
    queue = fair_entries()
    for number in range(3):
        push(queue, f"a{number}", 10)
        push(queue, f"b{number}", 10, priority=-100)
    assert [value[0] for value in pop(queue, 6)] == ["a", "b", "a", "b", "a", "b"]


def test_a_large_entry_that_passed_small_ones_is_paid_for():
    queue = fair_entries()
    for number in range(3):
        push(queue, f"a{number}")
        push(queue, f"b{number}")
    push(queue, "alarge", 3, priority=-1)
    assert pop(queue, 5) == ["alarge", "b0", "b1", "b2", "a0"]


def test_many_tenants_that_come_once_leave_nothing():
    queue = fair_entries()
    for number in range(10_000):
        queue.add(Entry(str(number), str(number)))
        if len(queue) > 10:
            queue.pop()
    assert pop(queue, 10) == [str(number) for number in range(9_990, 10_000)]
    assert not any((queue._tenants, queue._order, queue._charged, queue._idle))


costs = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100)), min_size=1, max_size=80)


@given(costs)
def test_tenants_that_wait_get_equal_shares(costs):
    queue = fair_entries()
    waiting: Counter[str] = Counter()
    for number, (tenant, cost) in enumerate(costs):
        queue.add(Entry(number, tenant, cost))
        waiting[tenant] += 1
    largest = max(cost for _, cost in costs)
    served: Counter[str] = Counter()
    seen = dict.fromkeys("abc", -1)
    while queue:
        entry = queue.pop()
        assert entry.value > seen[entry.tenant], "in order of arrival"
        seen[entry.tenant] = entry.value
        served[entry.tenant] += entry.cost
        waiting[entry.tenant] -= 1
        for other in "abc":
            if waiting[other]:  # it has waited from the start
                assert served[entry.tenant] - served[other] <= 2 * largest
