from __future__ import annotations

from core.sampling.processors.protocol import PerRequest


def test_a_value_is_made_once_while_its_source_is_in_the_batch():
    made = []
    kept = PerRequest(lambda source: made.append(source) or list(source))
    one, two, three = (1,), (2, 2), (3,)
    first = kept.of([one, two, one])
    assert first == [[1], [2, 2], [1]]
    assert first[0] is first[2]
    assert kept.of([two, three])[0] is first[1]
    assert made == [one, two, three]
    assert kept.of([one]) == [[1]]
    assert made == [one, two, three, one]  # it had left the batch


def test_equal_sources_have_values_of_their_own():
    kept = PerRequest(lambda source: [len(source)])
    a, b = {1: 2.0}, {1: 2.0}
    left, right = kept.of([a, b])
    assert left is not right


def test_a_new_source_at_an_old_address_gets_its_own_value():
    kept = PerRequest(list)
    for i in range(1000):
        source = tuple([i] * 3)
        assert kept.of([source]) == [[i] * 3]
        del source
