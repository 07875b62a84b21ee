"""What a request takes from the store, and what that costs."""

import pytest

from core.contract.errors import InvalidRequest, RequestCancelled
from server.apis.responses import store as kept


@pytest.fixture
def stored(shelf, answer):
    """The stored response to a request."""
    return lambda **fields: shelf.store.get(shelf.tenant, answer(**fields)["id"])


@pytest.fixture
def decoded(monkeypatch):
    """The stored items that are decoded from now on."""
    found = []
    read_item = kept.read_item
    monkeypatch.setattr(kept, "read_item", lambda data: found.append(data) or read_item(data))
    return found


def reference(response, index=0):
    return {"type": "item_reference", "id": response.output_ids[index]}


class TestNumStoredBytes:
    def test_items_count_as_often_as_they_are_named(self, decode, shelf, stored):
        response = stored(text="fine")
        size = len(response.items[-1])
        for n in (0, 1, 5):
            items = [{"role": "user", "content": "x"}, *[reference(response)] * n]
            assert shelf.num_stored_bytes(decode(input=items), 10**6) == n * size

    def test_a_conversation_counts_with_what_is_named_besides(self, decode, shelf, stored):
        response = stored(text="fine", input="x" * 100)
        items = response.items
        request = decode(input=[reference(response)], previous_response_id=response.id)
        total = sum(map(len, items)) + len(items[-1])
        assert shelf.num_stored_bytes(request, total) == total
        with pytest.raises(InvalidRequest) as caught:
            shelf.num_stored_bytes(request, total - 1)
        assert caught.value.param == "previous_response_id"
        assert f" {total} bytes" in caught.value.message
        assert f" {total - 1} bytes" in caught.value.message

    def test_unknown_ids_count_nothing(self, decode, shelf):
        request = decode(
            input=[{"type": "item_reference", "id": "msg_0"}, {"type": "item_reference"}],
            previous_response_id="resp_0",
        )
        assert shelf.num_stored_bytes(request, 0) == 0
        assert shelf.num_stored_bytes(decode(input="text"), 0) == 0


def test_an_item_is_read_once(translate, stored, decoded):
    one, two = stored(text="one"), stored(text="two")
    items = [reference(one), reference(two)] * 10
    translate(input=[*items, {"role": "user", "content": "x"}])
    assert decoded == [one.items[-1], two.items[-1]]


class TestClientsThatLeave:
    def test_references_are_not_read_on(self, translate, stored, decoded, leave):
        responses = [stored(text=f"t{i}") for i in range(5)]
        leave(lambda: len(decoded) == 2)
        with pytest.raises(RequestCancelled):
            translate(input=[reference(response) for response in responses])
        assert len(decoded) == 2

    def test_a_conversation_is_not_read_on(self, translate, stored, decoded, leave):
        response = stored(input=[{"role": "user", "content": f"q{i}"} for i in range(9)])
        leave(lambda: len(decoded) == 2)
        with pytest.raises(RequestCancelled):
            translate(previous_response_id=response.id)
        assert len(decoded) == 2

    def test_items_are_not_encoded_on(self, decode, shelf, monkeypatch, leave):
        request = decode(input=[{"role": "user", "content": f"q{i}"} for i in range(9)])
        items = shelf.items(request)
        encoded = []
        monkeypatch.setattr(kept, "kept_item", lambda item: encoded.append(item) or b"{}")
        leave(lambda: len(encoded) == 2)
        with pytest.raises(RequestCancelled):
            kept.kept_items(items)
        assert len(encoded) == 2
