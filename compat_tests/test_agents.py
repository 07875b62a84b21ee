"""What agents send: names, numbers of tools, replayed turns, and the older form of calls."""

import json
from typing import Any

import openai
import pytest

from compat_tests.support.api import CHAT, Api, Json, user
from compat_tests.support.calls import ADD, PING, check_calls, function, named

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize("name", ["files.read", "mcp__server__" + "x" * 100, "a.b-c_d.9"])
@pytest.mark.parametrize("choice", ["required", "named"])
def test_names_of_tools(api: Api, name: str, choice: str) -> None:
    tool = function(name, NUMBER)
    tool_choice = named(name) if choice == "named" else choice
    [answer] = api.chat("Hi", tools=[tool, PING], tool_choice=tool_choice, max_tokens=400)[
        "choices"
    ]
    check_calls(answer["message"]["tool_calls"], [tool, PING])
    if choice == "named":
        assert answer["message"]["tool_calls"][0]["function"]["name"] == name


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_names_of_tools_at_other_doors(api: Api, path: str) -> None:
    name = "files.read_" + "x" * 100
    common = {"model": api.server.model, "temperature": 0}
    if path == "/v1/responses":
        tool: Json = {"type": "function", "name": name, "parameters": NUMBER}
        fields = {"input": "Hi", "tools": [tool], "tool_choice": "required"}
        calls = api.ok(path, common | fields)["output"]
    else:
        tool = {"name": name, "input_schema": NUMBER}
        fields = {"messages": user("Hi"), "tools": [tool], "tool_choice": {"type": "any"}}
        calls = api.ok(path, common | fields | {"max_tokens": 400})["content"]
    assert {call["name"] for call in calls} == {name}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/api/chat"])
def test_a_prompt_beyond_the_context_has_openai_s_words(api: Api, path: str) -> None:
    text = "word " * api.server.max_model_len
    field = "input" if path == "/v1/responses" else "messages"
    body = {"model": api.server.model, field: user(text), "max_tokens": 5, "stream": False}
    if path != "/v1/messages":
        del body["max_tokens"]
    reply = api.post(path, body)
    assert reply.status == 400
    assert "This model's maximum context length is" in reply.text


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_more_tools_than_openai_takes(api: Api, choice: str) -> None:
    tools = [function(f"server_{i}.tool", {"type": "object"}) for i in range(200)]
    fields = {"tools": tools, "tool_choice": choice, "max_tokens": 200}
    body = api.chat("Hi", truncate_prompt_tokens=500, **fields)  # the model's window is small
    check_calls(body["choices"][0]["message"].get("tool_calls", []), tools)
    assert choice == "auto" or body["choices"][0]["message"]["tool_calls"]


def test_replayed_turns(api: Api) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    messages: list[Json] = [
        {"role": "developer", "content": "Be brief."},
        *user("Add 1."),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call],
            "refusal": None,
            "annotations": [],
            "audio": None,
            "provider_specific_fields": {"x": [1]},
        },
        {"role": "tool", "tool_call_id": "c1", "content": None, "is_error": False},
        {"role": "assistant", "content": None, "reasoning_content": "I am done."},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": "Done.", "tool_calls": [], "function_call": None},
        *user("Thanks."),
    ]
    body = api.chat(messages=messages, tools=[ADD], metadata={"a": {"b": [1]}}, max_tokens=4)
    assert body["choices"]


def test_arguments_as_an_object_are_the_same_prompt(api: Api) -> None:
    def prompt(arguments: Any) -> list[int]:
        call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": arguments}}
        turn = {"role": "assistant", "content": None, "tool_calls": [call]}
        fields = {"messages": [*user("a"), turn], "tools": [ADD], "max_tokens": 1}
        ids: list[int] = api.chat(**fields, return_token_ids=True)["prompt_token_ids"]
        return ids

    assert prompt({"a": 1, "b": [2]}) == prompt('{"a": 1, "b": [2]}')


def test_keywords_that_are_not_enforced_are_reported(api: Api) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    tool = function("f", schema, strict=False)
    reply = api.post(CHAT, api.chat_body("Hi", tools=[tool], max_tokens=2))
    assert (reply.status, reply.header("x-roseinfer-ignored")) == (200, "tools.f.uniqueItems")


FUNCTION: Any = {"name": "add", "description": "Adds.", "parameters": NUMBER}


def test_the_older_form_of_calls(sdk: openai.OpenAI, server: Any) -> None:
    """With the official SDK, strictly validated: named, streamed and replayed."""
    asked: Any = {
        "model": server.model,
        "messages": user("Add."),
        "functions": [FUNCTION],
        "function_call": {"name": "add"},
        "temperature": 0,
        "max_tokens": 300,
    }
    message = sdk.chat.completions.create(**asked).choices[0].message
    assert message.tool_calls is None
    assert message.function_call is not None
    assert message.function_call.name == "add"
    assert isinstance(json.loads(message.function_call.arguments)["n"], int)

    name = arguments = ""
    with sdk.chat.completions.create(**asked, stream=True) as stream:
        for chunk in stream:
            piece = chunk.choices[0].delta.function_call
            if piece is not None:
                name, arguments = name + (piece.name or ""), arguments + (piece.arguments or "")
    assert (name, arguments) == ("add", message.function_call.arguments)

    result = {"role": "function", "name": "add", "content": "4"}
    asked["messages"] = [*user("Add."), message.model_dump(), result]
    asked["function_call"] = "auto"
    assert sdk.chat.completions.create(**asked).choices[0].finish_reason in (
        "stop",
        "function_call",
    )
