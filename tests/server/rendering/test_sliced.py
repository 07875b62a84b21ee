import weakref

import msgspec
import pytest

from server.rendering.logprobs import SLICE, encoded_ids, encoded_list, list_or_encoded

ITEMS = [{"a": i, "b": [None, "é]", ","]} for i in range(3 * SLICE + 1)]


@pytest.mark.parametrize("length", [0, 1, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE, 3 * SLICE + 1])
def test_the_json_is_that_of_the_list(length):
    expected = msgspec.json.encode({"x": ITEMS[:length]})
    assert msgspec.json.encode({"x": encoded_list(iter(ITEMS[:length]))}) == expected
    assert msgspec.json.encode({"x": list_or_encoded(length, iter(ITEMS[:length]))}) == expected
    ids = tuple(range(length))
    assert msgspec.json.encode([encoded_ids(ids)]) == msgspec.json.encode([list(ids)])


class Item(msgspec.Struct, weakref=True, frozen=True):
    number: int


@pytest.mark.parametrize(("weight", "num_items"), [(1, SLICE), (100, SLICE // 100), (SLICE, 1)])
def test_one_slice_exists_at_a_time(weight, num_items):
    alive, most = weakref.WeakSet(), 0

    def items():
        nonlocal most
        for i in range(10 * SLICE):
            alive.add(item := Item(i))
            most = max(most, len(alive))
            yield item

    encoded_list(items(), weight=weight)
    assert most <= 2 * num_items


def test_lists_of_heavy_items_are_encoded():
    assert isinstance(list_or_encoded(3, iter([1, 2, 3]), weight=SLICE), msgspec.Raw)


def test_short_lists_stay_lists():
    assert list_or_encoded(2, iter([1, 2])) == [1, 2]
    assert encoded_ids((3, 4)) == [3, 4]
