import msgspec
import pytest

from core.contract.errors import InvalidRequest
from server.apis.responses.store import item_list

ITEMS = [msgspec.json.encode({"id": f"msg_{i}", "type": "message"}) for i in range(5)]


def page(**options):
    body = item_list(ITEMS, **{"order": "asc", "after": None, "limit": 20} | options)
    return msgspec.json.decode(body)


def test_all_in_both_orders():
    found = page()
    assert [item["id"] for item in found["data"]] == [f"msg_{i}" for i in range(5)]
    assert (found["first_id"], found["last_id"], found["has_more"]) == ("msg_0", "msg_4", False)
    assert page(order="desc")["data"] == found["data"][::-1]


def test_pages_follow_one_another():
    ids, after = [], None
    while True:
        found = page(after=after, limit=2)
        ids += [item["id"] for item in found["data"]]
        after = found["last_id"]
        if not found["has_more"]:
            break
    assert ids == [f"msg_{i}" for i in range(5)]


def test_behind_the_last_there_is_nothing():
    assert page(after="msg_4") == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


def test_an_unknown_cursor_is_refused():
    with pytest.raises(InvalidRequest) as caught:
        page(after="msg_9")
    assert caught.value.param == "after"
