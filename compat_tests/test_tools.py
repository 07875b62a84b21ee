"""C-108, C-114 to C-121: tools, the choice among them, and calls, streamed and whole."""

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel, Field
from tokenizers import Tokenizer

from compat_tests.support.api import CHAT, Api, Json, in_threads, usage_of, user
from compat_tests.support.calls import (
    ADD,
    BOOK,
    PING,
    TOOLS,
    WEATHER,
    check_calls,
    function,
    named,
    rebuilt,
    without_ids,
)
from compat_tests.support.process import ServerProcess

ASK = "What is the weather in Paris?"
SEEDS = range(6)


def choice_of(api: Api, content: Any = ASK, **fields: Any) -> Json:
    """The only choice of a chat with all tools."""
    [choice] = api.chat(content, **({"tools": TOOLS, "max_tokens": 300} | fields))["choices"]
    return choice


def random_choices(api: Api, content: str = ASK, **fields: Any) -> list[Json]:
    """Choices of several seeds at temperature 1."""

    def one(seed: int) -> Json:
        return choice_of(api, content, temperature=1, seed=seed, **fields)

    return in_threads(one, SEEDS)


def allowed(mode: str, *names: str) -> Json:
    return {
        "type": "allowed_tools",
        "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]},
    }


def check_required(choice: Json, tools: list[Json]) -> None:
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert check_calls(choice["message"]["tool_calls"], tools)


@pytest.mark.parametrize("content", [ASK, "Hello!", "Tell me a story.", "1 2 3 4 5"])
def test_c114_required(api: Api, content: str) -> None:
    check_required(choice_of(api, content, tool_choice="required"), TOOLS)


def test_c114_required_at_temperature_1(api: Api) -> None:
    for choice in random_choices(api, tool_choice="required"):
        check_required(choice, TOOLS)


@pytest.mark.parametrize("stop", ["}", '": ', "<tool_call>", "{"])
def test_c114_a_stop_string_does_not_cut_a_required_call(api: Api, stop: str) -> None:
    check_required(choice_of(api, tool_choice="required", stop=stop), TOOLS)


@pytest.mark.parametrize("tool", [ADD, BOOK, PING])
def test_c114_required_of_one_tool(api: Api, tool: Json) -> None:
    choice = choice_of(api, "Good morning.", tools=[tool], tool_choice="required")
    check_required(choice, [tool])


def test_c114_required_of_three_choices(api: Api) -> None:
    body = api.chat(ASK, tools=TOOLS, tool_choice="required", n=3, temperature=1, seed=5)
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    ids = set()
    for choice in body["choices"]:
        check_required(choice, TOOLS)
        ids |= {call["id"] for call in choice["message"]["tool_calls"]}
    assert len(ids) == sum(len(choice["message"]["tool_calls"]) for choice in body["choices"])


def test_c114_required_with_the_sdk(sdk: openai.OpenAI, server: ServerProcess) -> None:
    completion = sdk.chat.completions.create(
        model=server.model, messages=user(ASK), tools=TOOLS, tool_choice="required", temperature=0
    )
    [choice] = completion.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    check_calls(call.model_dump() for call in choice.message.tool_calls)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("stream", [False, True])
def test_c115_named(api: Api, tool: Json, *, stream: bool) -> None:
    name = tool["function"]["name"]
    fields = {"tools": TOOLS, "tool_choice": named(name), "max_tokens": 300}
    if stream:
        message = rebuilt(api.stream_chat("Hello!", **fields))
        reason = message["finish_reason"]
    else:
        [choice] = api.chat("Hello!", **fields)["choices"]
        message, reason = choice["message"], choice["finish_reason"]
    assert reason == "stop"
    assert message["content"] is None
    assert [called for called, _ in check_calls(message["tool_calls"])] == [name]


def test_c115_named_at_temperature_1(api: Api) -> None:
    for choice in random_choices(api, tool_choice=named("book")):
        assert [name for name, _ in check_calls(choice["message"]["tool_calls"])] == ["book"]
        assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_c116_none(api: Api, *, stream: bool) -> None:
    fields = {"tools": TOOLS, "tool_choice": "none", "max_tokens": 60}
    if stream:
        chunks = api.stream_chat(ASK, **fields)
        assert all("tool_calls" not in c["delta"] for chunk in chunks for c in chunk["choices"])
        assert rebuilt(chunks)["finish_reason"] in {"stop", "length"}
    else:
        [choice] = api.chat(ASK, **fields)["choices"]
        assert "tool_calls" not in choice["message"]
        assert isinstance(choice["message"]["content"], str)
        assert choice["finish_reason"] in {"stop", "length"}


CUSTOM = {"type": "custom", "custom": {"name": "free"}}


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"tool_choice": "auto"}, ["tool_choice"]),
        ({"tool_choice": "required"}, ["tool_choice"]),
        ({"tool_choice": named("add")}, ["tool_choice"]),
        ({"tool_choice": "required", "tools": []}, ["tool_choice"]),
        ({"tool_choice": allowed("auto", "add")}, ["tool_choice"]),
        ({"tools": TOOLS, "tool_choice": named("absent")}, ["tool_choice"]),
        ({"tools": TOOLS, "tool_choice": allowed("auto", "add", "absent")}, ["tool_choice"]),
        ({"tools": TOOLS, "tool_choice": allowed("required")}, ["tool_choice"]),
        ({"tools": TOOLS, "tool_choice": allowed("auto")}, ["tool_choice"]),
        ({"tools": TOOLS, "tool_choice": allowed("always", "add")}, ["tool_choice"]),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, ["tool_choice"]),
        ({"tools": TOOLS, "tool_choice": {"type": "function"}}, ["tool_choice"]),
        ({"tools": TOOLS, "tool_choice": {"type": "grammar"}}, ["tool_choice"]),
        ({"tools": TOOLS, "tool_choice": 1}, ["tool_choice"]),
        ({"tools": [CUSTOM]}, ["tools[0]"]),
        ({"tools": TOOLS, "tool_choice": CUSTOM}, ["tool_choice"]),
        ({"tools": [ADD, PING, ADD]}, ["tools[2]"]),
        ({"tools": [function("no good")]}, ["tools[0]"]),
        ({"tools": [function("x" * 257)]}, ["tools[0]"]),
        ({"tools": [function("f", {"type": "objekt"}, strict=True)]}, ["tools"]),
        ({"tools": [function("f", {"properties": []}, strict=True)]}, ["tools"]),
        ({"tools": [function(f"f{i}") for i in range(1025)]}, ["tools"]),
        ({"functions": [{"name": "f"}], "tools": TOOLS}, ["functions"]),
        ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, ["function_call"]),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_c117_refused(api: Api, fields: Json, names: list[str], *, stream: bool) -> None:
    error = api.refused_chat(*names, stream=stream, **fields)
    assert error["param"].startswith(names[0])


def test_c117_a_strict_tool_whose_schema_cannot_be_enforced(api: Api) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    api.refused_chat("uniqueItems", tools=[function("f", schema, strict=True)])
    choice = choice_of(
        api, tools=[function("f", schema)], tool_choice="required", max_tokens=60
    )  # not strict: constrained as far as it goes
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "f"


@pytest.mark.parametrize(
    "tool_choice", ["auto", "required", named("book"), allowed("required", "add", "book")]
)
def test_c118_fragments_rebuild_the_same_calls(api: Api, tool_choice: Any) -> None:
    fields = {"tools": TOOLS, "tool_choice": tool_choice, "max_tokens": 300}
    body = api.chat(ASK, **fields)
    [whole] = body["choices"]
    chunks = api.stream_chat(ASK, stream_options={"include_usage": True}, **fields)
    message = rebuilt(chunks)
    assert without_ids(message["tool_calls"]) == without_ids(whole["message"].get("tool_calls", []))
    assert (message["content"] or None) == whole["message"]["content"]
    assert message["finish_reason"] == whole["finish_reason"]
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    streamed_usage = usage_of(chunks)
    assert [streamed_usage[c] for c in counts] == [body["usage"][c] for c in counts]


def test_c118_arguments_come_as_they_are_written(api: Api) -> None:
    chunks = api.stream_chat(ASK, tools=TOOLS, tool_choice=named("book"))
    fragments = [
        fragment["function"]["arguments"]
        for chunk in chunks
        for choice in chunk["choices"]
        for fragment in choice["delta"].get("tool_calls", [])
    ]
    assert len(fragments) > 10


def test_c118_the_helper_of_the_sdk_gives_the_same_object(
    sdk: openai.OpenAI, server: ServerProcess
) -> None:
    options: Json = {
        "model": server.model,
        "messages": user(ASK),
        "tools": TOOLS,
        "tool_choice": "required",
        "temperature": 0,
    }
    whole = sdk.chat.completions.create(**options).choices[0]
    with sdk.chat.completions.stream(**options) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in kinds
    assert "tool_calls.function.arguments.done" in kinds
    assert final.finish_reason == whole.finish_reason == "tool_calls"
    assert final.message.content == whole.message.content
    assert whole.message.tool_calls is not None
    assert final.message.tool_calls is not None
    final_calls = [call.model_dump() for call in final.message.tool_calls]
    check_calls(
        {k: v for k, v in call.items() if k != "index"}
        | {"function": {k: v for k, v in call["function"].items() if k != "parsed_arguments"}}
        for call in final_calls
    )
    assert [(call.function.name, call.function.arguments) for call in final.message.tool_calls] == [
        (call.function.name, call.function.arguments) for call in whole.message.tool_calls
    ]


def several_calls(api: Api, eos_token_ids: set[int], **fields: Any) -> Json:
    """A finished choice with two calls or more: the end token is made ever less likely."""
    for bias in range(-1, -40, -3):
        body = api.chat(
            "What is the weather in Paris? And: add 1 and 2.",
            **(
                {"tools": [WEATHER, ADD], "tool_choice": "required", "max_tokens": 400}
                | {"n": 4, "temperature": 1, "seed": 1}
                | {"logit_bias": {str(token_id): bias for token_id in eos_token_ids}}
                | fields
            ),
        )
        for choice in body["choices"]:
            is_whole = choice["finish_reason"] != "length"
            if is_whole and len(choice["message"]["tool_calls"]) > 1:
                return choice
    raise AssertionError("the model never ends after two calls")


def test_c119_several_calls_in_one_turn(api: Api, eos_token_ids: set[int]) -> None:
    choice = several_calls(api, eos_token_ids)
    check_required(choice, [WEATHER, ADD])


def test_c119_several_calls_streamed(api: Api, eos_token_ids: set[int]) -> None:
    bias = {str(token_id): -100 for token_id in eos_token_ids}
    fields = {"tools": [PING, ADD], "tool_choice": "required", "logit_bias": bias}
    message = rebuilt(api.stream_chat(ASK, **fields, max_tokens=200))
    assert message["finish_reason"] == "length"
    assert len(message["tool_calls"]) > 1
    check_calls(message["tool_calls"][:-1], [PING, ADD])


@pytest.mark.parametrize("tool_choice", ["required", allowed("required", "add", "ping")])
def test_c119_no_parallel_calls(api: Api, tool_choice: Any, eos_token_ids: set[int]) -> None:
    bias = {str(token_id): -100 for token_id in eos_token_ids}
    choice = choice_of(
        api, tool_choice=tool_choice, parallel_tool_calls=False, logit_bias=bias, max_tokens=200
    )
    check_required(choice, TOOLS)
    assert len(choice["message"]["tool_calls"]) == 1


def test_c119_no_parallel_calls_where_none_is_needed(api: Api) -> None:
    for choice in random_choices(api, parallel_tool_calls=False):
        assert len(choice["message"].get("tool_calls", [])) <= 1


@pytest.mark.parametrize("stream", [False, True])
def test_c120_a_call_that_is_cut(api: Api, *, stream: bool) -> None:
    fields = {"tools": TOOLS, "tool_choice": named("book")}
    [choice] = api.chat(ASK, **fields, max_tokens=300)["choices"]
    [whole] = without_ids(choice["message"]["tool_calls"])
    num_with_calls = 0
    for most in (1, 5, 14, 18, 24):
        if stream:
            message = rebuilt(api.stream_chat(ASK, **fields, max_tokens=most))
            reason = message["finish_reason"]
        else:
            [choice] = api.chat(ASK, **fields, max_tokens=most)["choices"]
            message, reason = choice["message"], choice["finish_reason"]
        assert reason == "length"
        for call in without_ids(message.get("tool_calls", [])):
            num_with_calls += 1
            assert call["name"] == "book"
            assert whole["arguments"].startswith(call["arguments"])
            assert call["arguments"] != whole["arguments"]
    assert num_with_calls


@pytest.mark.parametrize("content", [ASK, "Hello!", "Tell me a joke.", "What is 2 plus 3?"])
def test_c121_auto_is_consistent(api: Api, content: str) -> None:
    for choice in [choice_of(api, content), *random_choices(api, content)]:
        message = choice["message"]
        if "tool_calls" in message:
            assert message["tool_calls"]
            if choice["finish_reason"] != "length":
                assert choice["finish_reason"] == "tool_calls"
                check_calls(message["tool_calls"])
        else:
            assert isinstance(message["content"], str)
            assert choice["finish_reason"] in {"stop", "length"}
        if message["content"]:
            assert "<tool_call>" not in message["content"] or choice["finish_reason"] == "length"


def test_c121_no_key_without_calls(api: Api) -> None:
    message = api.chat("Hello!", max_tokens=8)["choices"][0]["message"]
    assert "tool_calls" not in message
    assert "function_call" not in message


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_are_all_that_is_called(api: Api, mode: str) -> None:
    choices = random_choices(api, tool_choice=allowed(mode, "add", "ping"))
    for choice in choices:
        calls = check_calls(choice["message"].get("tool_calls", []), [ADD, PING])
        assert calls or mode == "auto"


def test_allowed_tools_leave_the_prompt_as_it_is(api: Api) -> None:
    counts = {
        json.dumps(tool_choice): api.chat(
            ASK, tools=TOOLS, tool_choice=tool_choice, max_tokens=1, return_token_ids=True
        )["prompt_token_ids"]
        for tool_choice in ("auto", "required", allowed("auto", "add"), named("ping"))
    }
    assert len({json.dumps(ids) for ids in counts.values()}) == 1


def test_tools_and_a_format(api: Api) -> None:
    """Calls come first; text, where there is any, is of the format."""
    schema = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}
    response_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for choice in random_choices(api, "Hello!", response_format=response_format):
        message = choice["message"]
        if "tool_calls" in message:
            assert message["content"] is None
            check_calls(message["tool_calls"])
            assert choice["finish_reason"] == "tool_calls"
        else:
            assert isinstance(json.loads(message["content"])["x"], bool)
            assert choice["finish_reason"] == "stop"
    required = choice_of(api, tool_choice="required", response_format=response_format)
    check_required(required, TOOLS)


def test_the_faulty_one_of_tools_and_a_format_is_named(api: Api) -> None:
    good = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    bad = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "thing"}}}
    bad["json_schema"]["strict"] = True
    bad_tool = function(
        "f", {"type": "object", "properties": {"a": {"type": "thing"}}}, strict=True
    )
    assert api.refused_chat(tools=[bad_tool], response_format=good)["param"].startswith("tools")
    error = api.refused_chat(tools=TOOLS, response_format=bad)
    assert error["param"].startswith("response_format")


def test_logprobs_of_calls(api: Api) -> None:
    """Every token has its entry, those of the markup too; streamed as whole."""
    fields = {"tools": TOOLS, "tool_choice": "required", "logprobs": True, "top_logprobs": 2}
    [choice] = api.chat(ASK, **fields, return_token_ids=True)["choices"]
    entries = choice["logprobs"]["content"]
    assert len(entries) == len(choice["token_ids"])
    text = b"".join(bytes(entry["bytes"]) for entry in entries).decode()
    for call in without_ids(choice["message"]["tool_calls"]):
        assert call["arguments"] in text
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    streamed = [
        entry
        for chunk in api.stream_chat(ASK, **fields)
        for part in chunk["choices"]
        if part["logprobs"]
        for entry in part["logprobs"]["content"]
    ]
    assert [entry["token"] for entry in streamed] == [entry["token"] for entry in entries]


class GetWeather(BaseModel):
    """The weather in a city."""

    city: str = Field(max_length=20)
    days: int = Field(ge=1, le=9)


def test_c125_parse_gives_typed_arguments(sdk: openai.OpenAI, server: ServerProcess) -> None:
    for temperature in (0, 1):
        completion = sdk.chat.completions.parse(
            model=server.model,
            messages=user(ASK),
            tools=[openai.pydantic_function_tool(GetWeather)],
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=temperature,
            seed=3,
        )
        calls = completion.choices[0].message.tool_calls
        assert calls
        assert isinstance(calls[0].function.parsed_arguments, GetWeather)


def test_c108_a_round_trip(sdk: openai.OpenAI, api: Api, tokenizer: Tokenizer) -> None:
    options: Json = {"model": api.server.model, "tools": TOOLS, "temperature": 0}
    messages: list[Any] = user(ASK)
    first = sdk.chat.completions.create(
        messages=messages, tool_choice=named("get_weather"), **options
    )
    message = first.choices[0].message
    assert message.tool_calls
    [call] = message.tool_calls
    assert call.type == "function"
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"weather": "sunny"}'}
    messages += [message.model_dump(exclude_unset=True), result]
    second = sdk.chat.completions.create(messages=messages, **options, max_tokens=100)
    assert second.choices[0].message.content or second.choices[0].message.tool_calls

    body = api.chat(messages=messages, tools=TOOLS, max_tokens=1, return_token_ids=True)
    prompt = tokenizer.decode(body["prompt_token_ids"], skip_special_tokens=False)
    arguments = json.dumps(json.loads(call.function.arguments), ensure_ascii=False)
    assert f'{{"name": "get_weather", "arguments": {arguments}}}' in prompt  # not a string
    assert f"tool\n{result['content']}<|im_end|>" in prompt
    for tool in TOOLS:
        described = tool["function"].get("parameters", {"type": "object", "properties": {}})
        assert json.dumps(described) in prompt


@pytest.mark.parametrize("nothing", [{}, {"description": None, "strict": None, "parameters": None}])
def test_c108_what_a_tool_does_not_say_is_not_shown(
    api: Api, tokenizer: Tokenizer, nothing: Json
) -> None:
    tool = {"type": "function", "function": {"name": "ping", **nothing}}
    body = api.chat(tools=[tool], max_tokens=1, return_token_ids=True)
    prompt = tokenizer.decode(body["prompt_token_ids"], skip_special_tokens=False)
    assert '\n{"name": "ping", "parameters": {"type": "object", "properties": {}}}\n' in prompt


def test_c108_many_turns(api: Api) -> None:
    messages: list[Json] = user(ASK)
    for number in range(3):
        [choice] = api.chat(messages=messages, tools=TOOLS, tool_choice="required", max_tokens=300)[
            "choices"
        ]
        check_required(choice, TOOLS)
        messages.append(choice["message"])
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": f"{number}"}
            for call in choice["message"]["tool_calls"]
        ]
    assert api.post(CHAT, api.chat_body(messages=messages, tools=TOOLS)).status == 200
