from typing import Any

import msgspec
import pytest

from core.contract.errors import InvalidRequest
from core.text.content_forms import joined
from schemas.messages import Message
from server.translation.messages import template_messages
from tests.support.each import each


def translate(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    decoded = msgspec.json.decode(msgspec.json.encode(messages), type=list[Message])
    return template_messages(decoded)


def refused(*messages):
    with pytest.raises(InvalidRequest) as caught:
        translate(*messages)
    return caught.value


def call(arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"id": "call_1", "type": "function", "function": function, **more}


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_plain_messages(role):
    assert translate({"role": role, "content": "x"}) == [{"role": role, "content": "x"}]


def test_developer_is_system():
    assert translate({"role": "developer", "content": "x", "name": "n"}) == [
        {"role": "system", "content": "x", "name": "n"}
    ]


def test_names_are_kept_and_unknown_keys_are_dropped():
    message = {"role": "user", "content": "x", "name": "n", "type": "text", "cache_control": {}}
    assert translate(message) == [{"role": "user", "content": "x", "name": "n"}]


@each(
    ("parts", "text"),
    [
        ([], ""),
        ([{"type": "text", "text": "a"}], "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        (["a", "b"], "a\nb"),
        ([{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}], "a\nb"),
        ([{"type": "refusal", "refusal": "no"}], "no"),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}], "a"),
        ([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "a"}], "a"),
        ([{"type": "text", "text": "a", "prompt_cache_breakpoint": {}}], "a"),
    ],
)
def test_parts_become_text_parts(parts, text):
    for role in ("user", "system", "developer", "assistant"):
        assert joined(translate({"role": role, "content": parts})[0]["content"]) == text
    tool = {"role": "tool", "content": parts, "tool_call_id": "1"}
    assert joined(translate(tool)[0]["content"]) == text


@each("kind", ["image_url", "input_audio", "file"])
@each("value", [{"url": "x"}, "x", None])
def test_other_parts_are_refused_by_name(kind, value):
    part = {"type": kind, kind: value}
    error = refused({"role": "user", "content": "x"}, {"role": "user", "content": ["text", part]})
    assert error.param == "messages[1].content[1].type"
    assert error.code == "unsupported_parameter"
    assert f"'{kind}'" in error.message


class TestAssistant:
    def test_arguments_become_a_mapping(self):
        message = {"role": "assistant", "content": None, "tool_calls": [call('{"a": [1]}')]}
        assert translate(message) == [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "f", "arguments": {"a": [1]}},
                    }
                ],
            }
        ]

    @each("text", ["", None, "{", "[1]", "null", "5", "[" * 10**5, '{"a":NaN}'])
    def test_invalid_arguments_become_an_empty_mapping(self, text):
        [message] = translate({"role": "assistant", "tool_calls": [call(text)]})
        assert message["tool_calls"][0]["function"]["arguments"] == {}

    def test_without_calls_there_is_no_key(self):
        [message] = translate({"role": "assistant", "content": "x", "tool_calls": []})
        assert message == {"role": "assistant", "content": "x"}

    def test_the_deprecated_form_of_a_call(self):
        [message] = translate(
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": "{}"},
            }
        )
        assert message["tool_calls"] == [
            {"type": "function", "function": {"name": "f", "arguments": {}}}
        ]

    @pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
    def test_reasoning_gets_both_names(self, key):
        [message] = translate({"role": "assistant", "content": "x", key: "hm"})
        assert message["reasoning_content"] == message["reasoning"] == "hm"

    def test_a_refusal_becomes_the_content(self):
        [message] = translate({"role": "assistant", "refusal": "no"})
        assert message == {"role": "assistant", "content": "no"}

    @pytest.mark.parametrize("arguments", [{}, {"a": [1], "b": {"c": None}}])
    def test_arguments_may_be_an_object(self, arguments):
        function = {"name": "f", "arguments": arguments}
        for calls in (
            {"tool_calls": [{"id": "c", "function": function}]},
            {"function_call": function},
        ):
            [message] = translate({"role": "assistant", "content": None, **calls})
            assert message["tool_calls"][0]["function"] == function

    @pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
    def test_a_turn_may_have_reasoning_only(self, key):
        [message] = translate({"role": "assistant", "content": None, key: "hm"})
        assert (message["content"], message["reasoning_content"]) == ("", "hm")
        assert translate({"role": "assistant", key: ""})[0]["content"] == ""

    def test_an_empty_list_of_calls_may_stand_alone(self):
        for given in ({"tool_calls": []}, {"tool_calls": [], "content": None}):
            assert translate({"role": "assistant", **given}) == [
                {"role": "assistant", "content": ""}
            ]

    @pytest.mark.parametrize("content", [{}, {"content": None}, {"audio": {"id": "a"}}])
    def test_a_message_without_content_is_refused(self, content):
        error = refused({"role": "user", "content": "x"}, {"role": "assistant", **content})
        assert error.param == "messages[1].content"
        assert error.code == "missing_required_parameter"

    def test_empty_content_is_accepted(self):
        assert translate({"role": "assistant", "content": ""})[0]["content"] == ""


def test_tool_and_function_results():
    assert translate(
        {"role": "tool", "content": "42", "tool_call_id": "call_1"},
        {"role": "tool", "content": None, "tool_call_id": "call_2"},
        {"role": "function", "content": None, "name": "f"},
    ) == [
        {"role": "tool", "content": "42", "tool_call_id": "call_1"},
        {"role": "tool", "content": "", "tool_call_id": "call_2"},
        {"role": "tool", "content": "", "name": "f"},
    ]
