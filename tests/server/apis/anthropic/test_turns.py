"""Conversations of the Messages API as chat messages."""

import msgspec
import pytest

from core.contract.errors import InvalidRequest, RequestCancelled
from schemas.anthropic import Turn
from schemas.limits import MAX_UNPACKED
from server.apis.anthropic.thinking import signature_of
from server.apis.anthropic.turns import chat_messages
from server.translation.messages import template_messages


def turns_of(*turns):
    body = [{"role": role, "content": content} for role, content in turns]
    return msgspec.json.decode(msgspec.json.encode(body), type=list[Turn])


def rendered(*turns, system=(), late=True):
    """What a chat template gets, without what it does not read."""
    messages = chat_messages(turns_of(*turns), system, takes_late_system=late)
    return [
        {key: value for key, value in message.items() if key != "reasoning"}
        for message in template_messages(messages)
    ]


def refused(*turns):
    with pytest.raises(InvalidRequest) as caught:
        chat_messages(turns_of(*turns), (), takes_late_system=True)
    return caught.value


def text(content):
    return {"type": "text", "text": content, "cache_control": {"type": "ephemeral"}}


def use(call_id, name, arguments):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id, *content):
    fields = {"content": content[0]} if content else {}
    return {"type": "tool_result", "tool_use_id": call_id, **fields}


def said(role, content):
    return {"role": role, "content": content}


def called(*calls, content=""):
    return said("assistant", content) | {
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ]
    }


def answered(call_id, name, content):
    return said("tool", content) | {"tool_call_id": call_id, "name": name}


def test_texts_and_blocks_are_the_same():
    plain = rendered(("user", "a"), ("assistant", "b"), ("user", "c"), system=["s"])
    assert plain == [
        said("system", "s"),
        said("user", "a"),
        said("assistant", "b"),
        said("user", "c"),
    ]
    blocks = (("user", [text("a")]), ("assistant", [text("b")]), ("user", [text("c")]))
    assert rendered(*blocks, system=["s"]) == plain


def test_several_texts_are_lines():
    found = rendered(("user", [text("a"), text("b")]), system=["s", "t"])
    assert found == [said("system", "s\nt"), said("user", "a\nb")]


def test_turns_of_one_role_are_one():
    found = rendered(("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", [text("d")]))
    assert found == [said("user", "a\nb"), said("assistant", "c\nd")]


def test_a_round_of_calls():
    found = rendered(
        ("user", "q"),
        ("assistant", [text("Well:"), use("toolu_1", "f", {"a": [1.5]}), use("toolu_2", "g", {})]),
        ("user", [result("toolu_1", "one"), result("toolu_2", [text("x"), text("y")]), text("go")]),
    )
    assert found == [
        said("user", "q"),
        called(("toolu_1", "f", {"a": [1.5]}), ("toolu_2", "g", {}), content="Well:"),
        answered("toolu_1", "f", "one"),
        answered("toolu_2", "g", "x\ny"),
        said("user", "go"),
    ]


def test_a_turn_without_blocks_is_empty():
    assert rendered(("user", [])) == [said("user", "")]


def test_results_without_content_are_empty():
    found = rendered(("assistant", [use("1", "f", {})]), ("user", [result("1"), result("1", [])]))
    assert [message["content"] for message in found[1:]] == ["", ""]


def test_a_result_of_an_unknown_call_has_no_name():
    [message] = rendered(("user", [result("1", "x")]))
    assert message == said("tool", "x") | {"tool_call_id": "1"}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "hm", "signature": "any"},
        {"type": "thinking", "thinking": "", "signature": signature_of("hm")},
    ],
)
def test_thinking_is_reasoning(block):
    [message] = rendered(("assistant", [block, use("1", "f", {})]))
    assert message["reasoning_content"] == "hm"


def omitted(thinking):
    return {"type": "thinking", "thinking": "", "signature": signature_of(thinking)}


def test_all_omitted_thinking_of_a_request_has_one_limit():
    half = omitted("a" * (MAX_UNPACKED // 2))
    rendered(("assistant", [half]), ("user", "q"), ("assistant", [half]))
    error = refused(("assistant", [half]), ("user", "q"), ("assistant", [half, omitted("b")]))
    assert (error.param, error.code) == ("messages[2].content[1].signature", "invalid_value")
    assert "messages[2].content[1].signature" in error.message


def test_a_client_that_has_left_ends_the_work_between_blocks(leave):
    num_asked = 0

    def has_left():
        nonlocal num_asked
        num_asked += 1
        return num_asked == 3

    leave(has_left)
    with pytest.raises(RequestCancelled):
        rendered(("assistant", [omitted("a")] * 5))
    assert num_asked == 3


def test_thinking_of_other_servers_is_left_out():
    blocks = [
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "", "signature": "EqQBCkYIBRgC"},
        text("a"),
    ]
    assert rendered(("assistant", blocks)) == [said("assistant", "a")]


def test_thinking_alone_is_an_answer():
    block = {"type": "thinking", "thinking": "hm", "signature": "s"}
    [message, _] = rendered(("assistant", [block]), ("user", "a"))
    assert (message["content"], message["reasoning_content"]) == ("", "hm")


def test_a_late_system_message_stays_or_becomes_the_users():
    turns = ("user", "a"), ("system", [text("s")]), ("assistant", "b")
    assert rendered(*turns) == [said("user", "a"), said("system", "s"), said("assistant", "b")]
    assert rendered(*turns, late=False) == [said("user", "a\ns"), said("assistant", "b")]


def test_search_results_and_references_are_text():
    found = {"type": "search_result", "source": "u", "title": "t", "content": [text("x")]}
    reference = {"type": "tool_reference", "tool_name": "f"}
    [one, two] = rendered(("user", [result("1", [found, reference]), found]))
    assert one["content"] == "t\nu\nx\nThe tool f is available now."
    assert two["content"] == "t\nu\nx"


@pytest.mark.parametrize("kind", ["image", "document"])
def test_images_and_documents_are_refused_by_name(kind):
    block = {"type": kind, "source": {"type": "base64", "data": "x"}}
    error = refused(("user", "a"), ("user", [text("b"), block]))
    assert (error.param, error.code) == ("messages[1].content[1].type", "unsupported_parameter")
    assert kind in error.message
    error = refused(("user", [result("1", [text("b"), block])]))
    assert error.param == "messages[0].content[0].content[1].type"


@pytest.mark.parametrize(
    ("role", "block"),
    [
        ("user", use("1", "f", {})),
        ("user", {"type": "thinking", "thinking": "x", "signature": "s"}),
        ("assistant", result("1", "x")),
        ("system", use("1", "f", {})),
    ],
)
def test_blocks_of_another_role_are_refused(role, block):
    error = refused((role, [text("a"), block]))
    assert (error.param, error.code) == ("messages[0].content[1]", "invalid_value")


@pytest.mark.parametrize("arguments", [[], "x", 1])
def test_an_input_must_be_an_object(arguments):
    assert (
        refused(("assistant", [use("1", "f", arguments)])).param == "messages[0].content[0].input"
    )
