"""Where stored responses are, and for whom."""

from server.client.answer import Address
from server.router.routing import MAX_RESPONSES, ResponseIndex
from server.router.upstream import Upstream

SERVER = Upstream(Address("h", 1))


def answer(number):
    return b'{"object": "response", "id" : "resp_%d", "output": [{"id": "msg_1"}]}' % number


def test_a_response_is_found_by_its_owner_only():
    index = ResponseIndex()
    index.note("anna", "m", answer(1), SERVER)
    assert index.get("anna", "resp_1") == ("m", SERVER)
    assert index.get("ben", "resp_1") is None
    assert index.get("anna", "resp_2") is None


def test_the_oldest_are_forgotten():
    index = ResponseIndex()
    for number in range(MAX_RESPONSES + 1):
        index.note("anna", "m", answer(number), SERVER)
    assert index.get("anna", "resp_0") is None
    assert index.get("anna", "resp_1") is not None


def test_many_responses_of_one_tenant_displace_no_others():
    index = ResponseIndex()
    index.note("ben", "m", answer(0), SERVER)
    for number in range(MAX_RESPONSES + 1):
        index.note("anna", "m", answer(number), SERVER)
    assert index.get("ben", "resp_0") is not None
    assert index.get("anna", "resp_1") is None
    assert index.get("anna", "resp_2") is not None


def test_a_response_may_be_noted_again():
    index = ResponseIndex()
    index.note("anna", "m", answer(1), SERVER)
    index.note("anna", "other", answer(1), SERVER)
    assert index.get("anna", "resp_1") == ("other", SERVER)


def test_an_answer_without_an_id_is_none():
    index = ResponseIndex()
    index.note("anna", "m", b'{"error": {}}', SERVER)
    index.note("anna", "m", b"x" * 5000 + answer(1), SERVER)
    assert index.get("anna", "resp_1") is None
