"""Which running sequence is preempted."""

from core.scheduler.admission import victim_of
from tests.support.builders import make_sequence


def running(tenants, priorities=None):
    priorities = priorities or [0] * len(tenants)
    return [
        make_sequence(tenant=tenant, priority=priority)
        for tenant, priority in zip(tenants, priorities, strict=True)
    ]


def test_of_one_tenant_the_last_admitted_is_preempted():
    sequences = running("aaa")
    assert victim_of(sequences) is sequences[2]


def test_the_tenant_with_the_most_gives_up_its_last():
    sequences = running("abaab")
    assert victim_of(sequences) is sequences[3]


def test_of_equal_tenants_the_last_admitted_is_preempted():
    sequences = running("abab")
    assert victim_of(sequences) is sequences[3]


def test_of_one_tenant_the_last_of_the_largest_priority_is_preempted():
    sequences = running("aaaa", [-1, 2, 2, 0])
    assert victim_of(sequences) is sequences[2]


def test_a_priority_does_not_choose_the_tenant():
    sequences = running("abaab", [-5, 9, -7, -6, 9])
    assert victim_of(sequences) is sequences[0]
    sequences = running("abab", [9, -9, 9, -8])
    assert victim_of(sequences) is sequences[3]


def test_a_tenant_can_be_left_with_one():
    assert victim_of(running("ab"), at_least=2) is None
    assert victim_of([]) is None
