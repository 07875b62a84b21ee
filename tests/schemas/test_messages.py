"""Messages are a union tagged by role, content parts a union tagged by type."""

import msgspec
import pytest

from schemas import messages as m
from schemas.chat import ChatCompletionRequest
from tests.support.each import each

CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}

MESSAGES = [
    ({"role": "developer", "content": "x", "name": "n"}, m.DeveloperMessage),
    ({"role": "system", "content": "x"}, m.SystemMessage),
    ({"role": "user", "content": [{"type": "text", "text": "x"}, "y"]}, m.UserMessage),
    ({"role": "assistant", "content": "x"}, m.AssistantMessage),
    ({"role": "assistant"}, m.AssistantMessage),
    ({"role": "assistant", "content": None, "tool_calls": [CALL]}, m.AssistantMessage),
    ({"role": "assistant", "tool_calls": []}, m.AssistantMessage),
    (
        {"role": "assistant", "content": "", "reasoning_content": "r", "reasoning": "r"},
        m.AssistantMessage,
    ),
    ({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}, m.AssistantMessage),
    ({"role": "tool", "content": "x", "tool_call_id": "call_1"}, m.ToolMessage),
    ({"role": "tool", "content": None, "tool_call_id": "call_1"}, m.ToolMessage),
    ({"role": "function", "content": None, "name": "f"}, m.FunctionMessage),
]
PARTS = [
    {"type": "text", "text": "x"},
    {"type": "input_text", "text": "x"},
    {"type": "output_text", "text": "x"},
    {"type": "refusal", "refusal": "x"},
    {"type": "thinking", "thinking": "x"},
    {"type": "reasoning", "text": "x"},
    {"type": "image_url", "image_url": {"url": "x", "detail": "auto"}},
    {"type": "image_url", "image_url": "x"},
    {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
    {"type": "file", "file": {"file_id": "x"}},
]
REFUSED = [
    ({"role": "narrator", "content": "x"}, "Invalid value 'narrator'", ".role"),
    ({"content": "x"}, "Object missing required field `role`", ""),
    ({"role": "user"}, "Object missing required field `content`", ""),
    ({"role": "system"}, "Object missing required field `content`", ""),
    ({"role": "developer"}, "Object missing required field `content`", ""),
    ({"role": "user", "content": None}, "Expected `str | array`, got `null`", ".content"),
    ({"role": "tool", "content": "x"}, "Object missing required field `tool_call_id`", ""),
    ({"role": "tool", "tool_call_id": "x"}, "Object missing required field `content`", ""),
    ({"role": "function", "content": "x"}, "Object missing required field `name`", ""),
    ({"role": "function", "name": "x"}, "Object missing required field `content`", ""),
    ({"role": "user", "content": [{"type": "smell"}]}, "Invalid value 'smell'", ".content[0].type"),
    (
        {"role": "user", "content": [{"text": "x"}]},
        "Object missing required field `type`",
        ".content[0]",
    ),
    (
        {"role": "user", "content": [{"type": "text"}]},
        "Object missing required field `text`",
        ".content[0]",
    ),
    ({"role": "user", "content": [1]}, "Expected `str | object`, got `int`", ".content[0]"),
    (
        {"role": "assistant", "tool_calls": [CALL | {"type": "custom"}]},
        "Invalid enum value 'custom'",
        ".tool_calls[0].type",
    ),
    (
        {"role": "assistant", "tool_calls": [{"id": "x"}]},
        "Object missing required field `function`",
        ".tool_calls[0]",
    ),
    ("x", "Expected `object`, got `str`", ""),
]


@each(("message", "struct"), MESSAGES)
def test_role_selects_the_message(chat, message, struct):
    (decoded,) = chat(messages=[message]).messages
    assert type(decoded) is struct
    assert decoded.role == message["role"]
    assert {"role", *struct.__struct_fields__} >= set(message)


@each("part", PARTS)
def test_type_selects_the_part(chat, part):
    (message,) = chat(messages=[{"role": "user", "content": [part]}]).messages
    (decoded,) = message.content
    assert decoded.type == part["type"]
    assert msgspec.to_builtins(decoded) == part


def test_strings_are_accepted_among_parts(chat):
    content = ["a", {"type": "text", "text": "b"}]
    (message,) = chat(messages=[{"role": "user", "content": content}]).messages
    assert message.content == ["a", m.TextPart(text="b")]


@pytest.mark.parametrize("arguments", ["", "{", None, {}, {"a": [{"b": None}]}])
def test_arguments_in_the_history_stay_as_they_are(chat, arguments):
    call = CALL | {"function": {"name": "f", "arguments": arguments}}
    (message,) = chat(messages=[{"role": "assistant", "tool_calls": [call]}]).messages
    assert message.tool_calls[0].function.arguments == arguments


@each(("message", "text", "path"), REFUSED)
def test_errors_name_the_index_of_the_message(chat, message, text, path):
    good = {"role": "user", "content": "x"}
    with pytest.raises(msgspec.ValidationError) as caught:
        chat(messages=[good, message])
    assert str(caught.value) == f"{text} - at `$.messages[1]{path}`"


def test_a_role_that_is_not_a_string_is_refused():
    body = b'{"messages":[{"role":3,"content":"x"}]}'
    with pytest.raises(msgspec.ValidationError, match=r"at `\$\.messages\[0\]\.role`"):
        msgspec.json.decode(body, type=ChatCompletionRequest)
