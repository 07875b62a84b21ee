"""Where stored responses are, and for whom."""

from server.router.config.config import Address
from server.router.routing import MAX_RESPONSES, ResponseIndex
from server.router.upstreams.upstream import Upstream

SERVER = Upstream(Address("h", 1))


def answer(number):
    return b'{"object": "response", "id" : "resp_%d", "output": [{"id": "msg_1"}]}' % number


def test_a_response_is_found_by_its_owner_only():
    index = ResponseIndex()
    index.note(answer(1), "anna", "m", SERVER)
    assert index.find("resp_1", "anna") == ("m", SERVER)
    assert index.find("resp_1", "ben") is None
    assert index.find("resp_2", "anna") is None


def test_the_oldest_are_forgotten():
    index = ResponseIndex()
    for number in range(MAX_RESPONSES + 1):
        index.note(answer(number), "anna", "m", SERVER)
    assert index.find("resp_0", "anna") is None
    assert index.find("resp_1", "anna") is not None


def test_many_responses_of_one_tenant_displace_no_others():
    index = ResponseIndex()
    index.note(answer(0), "ben", "m", SERVER)
    for number in range(MAX_RESPONSES + 1):
        index.note(answer(number), "anna", "m", SERVER)
    assert index.find("resp_0", "ben") is not None
    assert index.find("resp_1", "anna") is None
    assert index.find("resp_2", "anna") is not None


def test_a_response_may_be_noted_again():
    index = ResponseIndex()
    index.note(answer(1), "anna", "m", SERVER)
    index.note(answer(1), "anna", "other", SERVER)
    assert index.find("resp_1", "anna") == ("other", SERVER)


def test_an_answer_without_an_id_is_none():
    index = ResponseIndex()
    index.note(b'{"error": {}}', "anna", "m", SERVER)
    index.note(b"x" * 5000 + answer(1), "anna", "m", SERVER)
    assert index.find("resp_1", "anna") is None
