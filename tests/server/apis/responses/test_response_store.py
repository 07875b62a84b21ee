import threading

import pytest

from server.apis.responses.store import OVERHEAD, ResponseStore, StoredResponse
from tests.support.shelves import all_on, check_shelves


def stored(name, *, size=0, items=()):
    outputs = tuple(f"{item}".encode() for item in items)
    return StoredResponse(
        id=name,
        body=b"x" * size,
        items=(b"input", *outputs),
        output_ids=tuple(items),
    )


@pytest.fixture
def store():
    return ResponseStore(max_responses=3, max_bytes=10 * OVERHEAD)


def test_a_response_is_found_by_its_tenant_only(store):
    one = stored("r1")
    store.put("a", one)
    assert store.get("a", "r1") is one
    assert store.get("b", "r1") is None
    assert store.get("a", "r2") is None


def test_output_items_are_found_by_id(store):
    store.put("a", stored("r1", items=("msg_1", "fc_1")))
    store.put("a", stored("r2", items=("msg_2",)))
    assert store.item("a", "fc_1") == b"fc_1"
    assert store.item("b", "fc_1") is None
    assert store.item("a", "fc_2") is None
    store.delete("a", "r1")
    assert store.item("a", "fc_1") is None
    assert store.item("a", "msg_2") == b"msg_2"


def test_the_oldest_goes_first(store):
    for i in range(5):
        store.put("a", stored(f"r{i}"))
    assert [store.get("a", f"r{i}") is not None for i in range(5)] == [False] * 2 + [True] * 3


def test_bytes_are_limited(store):
    for i in range(3):
        store.put("a", stored(f"r{i}", size=4 * OVERHEAD))
    assert store.get("a", "r0") is None
    assert store.get("a", "r2") is not None


def test_a_response_larger_than_the_store_is_not_kept(store):
    store.put("a", stored("r1"))
    store.put("a", stored("r2", size=10 * OVERHEAD))
    assert store.get("a", "r2") is None
    assert store.get("a", "r1") is not None


def test_the_largest_tenant_gives_way(store):
    store.put("small", stored("r0"))
    for i in range(1, 9):
        store.put("large", stored(f"r{i}", size=OVERHEAD))
    assert store.get("small", "r0") is not None
    assert store.get("large", "r8") is not None


def test_of_too_many_bytes_the_tenant_with_the_most_bytes_gives_way():
    store = ResponseStore(max_responses=10, max_bytes=10 * OVERHEAD)
    for i in range(3):
        store.put("many", stored(f"r{i}"))
    for i in range(3, 5):
        store.put("large", stored(f"r{i}", size=4 * OVERHEAD))
    assert all(store.get("many", f"r{i}") for i in range(3))
    assert store.get("large", "r3") is None
    assert store.get("large", "r4") is not None


def test_many_small_responses_evict_nobody_elses(store):
    large = stored("r0", size=5 * OVERHEAD)
    store.put("few", large)
    for i in range(1, 9):
        store.put("many", stored(f"r{i}"))
    assert store.get("few", "r0") is large
    assert [i for i in range(1, 9) if store.get("many", f"r{i}")] == [7, 8]


def test_a_deleted_response_is_gone_and_makes_room(store):
    for i in range(3):
        store.put("a", stored(f"r{i}"))
    assert store.delete("a", "r1")
    assert not store.delete("a", "r1")
    assert not store.delete("b", "r0")
    store.put("a", stored("r3"))
    assert store.get("a", "r0") is not None


def test_off():
    store = ResponseStore(max_responses=0, max_bytes=10 * OVERHEAD)
    assert not store.is_on
    store.put("a", stored("r1"))
    assert store.get("a", "r1") is None


def check(store):
    """Fail unless there are exactly the items of the responses that are kept."""
    check_shelves(store._responses)
    assert set(store._items) == {
        (tenant, item_id)
        for tenant, response in all_on(store._responses)
        for item_id in response.output_ids
    }


def test_threads():
    store = ResponseStore(max_responses=50, max_bytes=10**6)

    def work(tenant):
        for i in range(500):
            store.put(tenant, stored(f"r{i}", items=(f"msg_{i}",)))
            store.get(tenant, f"r{i - 10}")
            store.delete(tenant, f"r{i - 3}")

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [(t, i) for t in range(4) for i in range(500) if store.get(f"t{t}", f"r{i}")]
    assert 0 < len(kept) <= 50
    check(store)
    for tenant, i in kept:
        assert store.delete(f"t{tenant}", f"r{i}")
    check(store)
    assert all(store.item(f"t{t}", f"msg_{i}") is None for t in range(4) for i in range(500))
