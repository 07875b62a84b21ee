from hypothesis import given
from hypothesis import strategies as st

from server.admission.fair_line import FairLine


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
