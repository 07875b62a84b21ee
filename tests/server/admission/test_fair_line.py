from hypothesis import given
from hypothesis import strategies as st

from server.admission.fair_line import MAX_SPARE, FairLine


def test_one_request_of_another_passes_a_long_line():
    line = FairLine()
    for number in range(500):
        line.push("greedy", 100, f"g{number}")
    first = line.pop()
    line.push("modest", 100, "m")
    assert (first, line.pop(), line.pop()) == ("g0", "m", "g1")


def test_an_idle_tenant_saves_no_credit():
    line = FairLine()
    for number in range(10):
        line.push("a", 1, f"a{number}")
    for _ in range(5):
        line.pop()
    for number in range(10):
        line.push("b", 1, f"b{number}")
    turns = [line.pop()[0] for _ in range(10)]
    assert turns.count("b") <= 6


def test_what_was_discarded_has_no_turn():
    line = FairLine()
    for item in ("a0", "a1", "b0"):
        line.push(item[0], 1, item)
    line.discard("a0")
    line.discard("a0")
    assert (len(line), line.pop(), line.pop(), len(line)) == (2, "a1", "b0", 0)


def test_the_last_one_discarded_leaves_nothing():
    line = FairLine()
    line.push("a", 9, "a0")
    line.discard("a0")
    line.push("b", 1, "b0")
    line.push("a", 1, "a1")
    line.push("b", 1, "b1")
    assert [line.pop() for _ in range(3)] == ["b0", "a1", "b1"]


def kept(line):
    num_entries = sum(len(tenant.items) for tenant in line._tenants.values())
    return max(num_entries, len(line._turns), len(line._ends), len(line._owners))


def test_tenants_that_come_once_are_forgotten_while_others_wait():
    line = FairLine()
    for number in range(5 * MAX_SPARE):
        line.push(f"t{number}", 1, number)
        if len(line) > 10:
            line.pop()
    assert len(line) == 10
    assert kept(line) <= MAX_SPARE + len(line)
    assert [line.pop() for _ in range(10)] == list(range(5 * MAX_SPARE - 10, 5 * MAX_SPARE))


def test_items_that_are_discarded_while_others_wait_are_forgotten():
    line = FairLine()
    line.push("stays", 1, "s")
    for number in range(5 * MAX_SPARE):
        line.push("leaves", 100, number)
        line.discard(number)
    assert kept(line) <= MAX_SPARE + len(line)
    assert line.pop() == "s"
    assert kept(line) == 0


def test_a_tenants_items_are_in_the_order_of_their_priorities():
    line = FairLine()
    for item, priority in (("a0", 0), ("a1", 5), ("a2", -5), ("a3", 0), ("a4", -5)):
        line.push("a", 1, item, priority=priority)
    assert [line.pop() for _ in range(5)] == ["a2", "a4", "a0", "a3", "a1"]


def test_a_priority_passes_no_other_tenant():
    line = FairLine()
    for number in range(3):
        line.push("a", 10, f"a{number}")
        line.push("b", 10, f"b{number}", priority=-100)
    assert [line.pop()[0] for _ in range(6)] == ["a", "b", "a", "b", "a", "b"]


def test_a_large_item_that_passed_small_ones_is_paid_for():
    line = FairLine()
    for number in range(3):
        line.push("a", 1, f"a{number}")
        line.push("b", 1, f"b{number}")
    line.push("a", 3, "large", priority=-1)
    assert [line.pop() for _ in range(5)] == ["large", "b0", "b1", "b2", "a0"]


def test_one_who_leaves_and_comes_again_has_saved_no_turn():
    line = FairLine()
    line.push("b", 1, "gone")
    for number in range(20):
        line.push("a", 1, f"a{number}")
    line.discard("gone")
    for _ in range(10):
        line.pop()
    for number in range(10):
        line.push("b", 1, f"b{number}")
    turns = [line.pop()[0] for _ in range(10)]
    assert turns.count("b") <= 6


items = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100)), min_size=1, max_size=80)


@given(items)
def test_tenants_that_wait_get_equal_shares_up_to_one_item(items):
    line = FairLine()
    waiting = dict.fromkeys("abc", 0)
    for number, (tenant, cost) in enumerate(items):
        line.push(tenant, cost, (tenant, cost, number))
        waiting[tenant] += 1
    largest = max(cost for _, cost in items)
    served = dict.fromkeys("abc", 0)
    seen = dict.fromkeys("abc", -1)
    while line:
        tenant, cost, number = line.pop()
        assert number > seen[tenant]  # a tenant's items keep their order
        seen[tenant] = number
        served[tenant] += cost
        waiting[tenant] -= 1
        for other in "abc":
            if waiting[other]:  # it has waited from the start
                assert served[tenant] - served[other] <= 2 * largest
