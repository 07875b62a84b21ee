"""Input items to chat messages."""

import msgspec
import pytest

from core.contract.errors import InvalidRequest
from schemas.messages import (
    AssistantMessage,
    DeveloperMessage,
    InputTextPart,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from schemas.responses_input import InputItem
from server.apis.responses.conversation import Conversation, Tools
from server.apis.responses.output import sealed
from server.apis.responses.store import PlacedItem
from tests.support.each import each

CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "so"}],
}


def say(role, text):
    return {"type": "message", "role": role, "content": text}


def converse(*items, names=None):
    placed = [
        PlacedItem(msgspec.convert(item, InputItem), f"input[{i}]") for i, item in enumerate(items)
    ]
    return Conversation(placed, Tools(names=names or {}))


def messages(*items, **options):
    return converse(*items, **options).messages


def test_roles():
    assert messages(
        say("system", "a"), say("developer", "b"), {"role": "user", "content": "c"}
    ) == [SystemMessage(content="a"), DeveloperMessage(content="b"), UserMessage(content="c")]


def test_parts():
    [message] = messages(say("user", [{"type": "input_text", "text": "a", "other": 1}]))
    assert message == UserMessage(content=[InputTextPart(text="a")])


def test_a_turn_of_the_assistant_is_one_message():
    conversation = converse(
        say("user", "hi"),
        REASONING,
        say("assistant", "well"),
        CALL,
        CALL | {"call_id": "c2"},
        OUTPUT,
    )
    [_, turn, result] = conversation.messages
    assert isinstance(turn, AssistantMessage)
    assert (turn.reasoning_content, turn.content) == ("so", "well")
    assert [call.id for call in turn.tool_calls] == ["c1", "c2"]
    assert turn.tool_calls[0].function.arguments == '{"a": 1}'
    assert result == ToolMessage(content="42", tool_call_id="c1")
    assert conversation.paths == ["input[0]", "input[1]", "input[5]"]


@each(
    ("items", "num_messages"),
    [
        ([say("assistant", "a"), say("assistant", "b")], 2),
        ([say("assistant", "a"), REASONING, say("assistant", "b")], 2),
        ([CALL, say("assistant", "b")], 2),
        ([CALL, REASONING, CALL], 2),
        ([CALL, OUTPUT, CALL, OUTPUT], 4),
        ([REASONING, REASONING, CALL], 1),
        ([say("assistant", "a"), CALL], 1),
    ],
)
def test_where_a_message_ends(items, num_messages):
    assert len(messages(*items)) == num_messages


def test_a_turn_of_calls_has_no_content():
    [message] = messages(CALL)
    assert message.content is None


def test_a_turn_of_reasoning_only_has_empty_content():
    [message] = messages(REASONING)
    assert (message.content, message.reasoning_content) == ("", "so")


@each(
    ("fields", "text"),
    [
        ({"summary": [{"type": "summary_text", "text": "short"}]}, "short"),
        ({"summary": [], "encrypted_content": sealed("whole")}, "whole"),
        ({"summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "gAAA"}, "s"),
        (
            {"summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": sealed("w")},
            "w",
        ),
        ({"summary": [], "encrypted_content": "gAAAA"}, None),
        ({"summary": [], "content": None}, None),
    ],
)
def test_reasoning(fields, text):
    [message] = messages({"type": "reasoning"} | fields)
    assert message.reasoning_content == text


def test_calls_of_namespaces_have_joined_names():
    named = CALL | {"namespace": "files", "name": "open"}
    [message] = messages(named, names={("files", "open"): "files__open"})
    assert message.tool_calls[0].function.name == "files__open"


def test_an_output_of_parts():
    [message] = messages(OUTPUT | {"output": [{"type": "input_text", "text": "x"}]})
    assert message.content == [InputTextPart(text="x")]


@each(
    ("item", "param"),
    [
        ({"type": "message", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        (CALL | {"call_id": None}, "input[0].call_id"),
        (CALL | {"name": None}, "input[0].name"),
        (OUTPUT | {"output": None}, "input[0].output"),
        (OUTPUT | {"call_id": None}, "input[0].call_id"),
        ({"type": "web_search_call", "id": "ws_1"}, "input[0].type"),
        ({"type": "compaction", "encrypted_content": "x"}, "input[0].type"),
        (say("user", [{"type": "input_image", "image_url": "data:"}]), "input[0].content[0].type"),
        (
            say("user", [{"type": "input_text", "text": ""}, {"type": "input_file"}]),
            "input[0].content[1].type",
        ),
        (OUTPUT | {"output": [{"type": "input_image"}]}, "input[0].output[0].type"),
        (REASONING | {"content": [{"type": "input_image"}]}, "input[0].content[0].type"),
    ],
)
def test_errors_name_the_field(item, param):
    with pytest.raises(InvalidRequest) as caught:
        messages(item)
    assert caught.value.param == param
    assert param.rpartition(".")[0] in caught.value.message
