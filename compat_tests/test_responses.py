"""POST /v1/responses: the official SDK with strict validation, and raw bytes."""

import asyncio
import json
from collections.abc import Callable

import openai
import pytest
from pydantic import BaseModel, Field

from compat_tests.support.api import Api, Json, check_error, user
from compat_tests.support.faults import FAIL_MIDWAY
from compat_tests.support.process import ServerProcess
from compat_tests.support.responses import (
    RESPONSES,
    WEATHER,
    body_of,
    events_of,
    respond,
    stream,
    text_of,
    without_ids,
)

STORY = "Tell me a story."
THINK = {"reasoning": {"effort": "low"}}


def test_plain(sdk: openai.OpenAI, server: ServerProcess) -> None:
    response = sdk.responses.create(model=server.model, input="Hello!", temperature=0)
    assert response.id.startswith("resp_")
    assert (response.object, response.status, response.error) == ("response", "completed", None)
    assert response.model == server.model
    [message] = response.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "completed")
    assert response.output_text
    usage = response.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert usage.input_tokens_details.cache_write_tokens == 0


def test_streamed_is_plain(sdk: openai.OpenAI, server: ServerProcess) -> None:
    request = {"model": server.model, "input": STORY, "temperature": 0, "max_output_tokens": 40}
    plain = sdk.responses.create(**request)
    events = list(sdk.responses.create(**request, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:4]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == plain.output_text
    assert len(deltas) > 5
    final = events[-1].response
    assert final.output_text == plain.output_text
    assert final.status == plain.status
    assert final.usage.output_tokens == plain.usage.output_tokens
    assert final.id == events[0].response.id
    assert {event.item_id for event in events if hasattr(event, "item_id")} == {final.output[0].id}


def test_c134_the_sdks_stream_helper(sdk: openai.OpenAI, server: ServerProcess) -> None:
    with sdk.responses.stream(model=server.model, input="Hello!", temperature=0) as stream:
        events = list(stream)
        final = stream.get_final_response()
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    assert events[-1].type == "response.completed"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert final.output_text == "".join(deltas)
    assert final.output_text


@pytest.mark.parametrize("fields", [{}, {"instructions": "Be brief."}, {"max_output_tokens": 5}])
def test_the_same_tokens_as_chat(api: Api, fields: Json) -> None:
    response = respond(api, STORY, **({"max_output_tokens": 30} | fields))
    system = [{"role": "system", "content": i}] if (i := fields.get("instructions")) else []
    chat = api.chat(
        messages=[*system, *user(STORY)], max_tokens=fields.get("max_output_tokens", 30)
    )
    assert text_of(response) == chat["choices"][0]["message"]["content"]
    assert response["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
    assert response["usage"]["output_tokens"] == chat["usage"]["completion_tokens"]


def test_a_conversation_has_the_same_tokens_as_chat(api: Api) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather"}}
    call["function"]["arguments"] = '{"city": "Paris"}'
    messages = [
        {"role": "developer", "content": "Be kind."},
        *user("What is the weather in Paris?"),
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Rain."},
        {"role": "assistant", "content": "It rains."},
        *user("Thanks!"),
    ]
    items = [
        messages[0],
        messages[1],
        {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "c1", **call["function"]},
        {"type": "function_call_output", "call_id": "c1", "output": "Rain."},
        messages[4],
        {"role": "user", "content": [{"type": "input_text", "text": "Thanks!"}]},
    ]
    tool = {k: v for k, v in WEATHER.items() if k != "type"}
    chat = api.chat(
        messages=messages, max_tokens=30, tools=[{"type": "function", "function": tool}]
    )
    response = respond(api, items, max_output_tokens=30, tools=[WEATHER])
    assert text_of(response) == (chat["choices"][0]["message"]["content"] or "")
    assert response["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]


def test_a_limit_of_tokens(api: Api) -> None:
    for response in (
        respond(api, STORY, max_output_tokens=3),
        stream(api, STORY, max_output_tokens=3)[-1]["response"],
    ):
        assert response["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["output"][-1]["status"] == "incomplete"
        assert response["usage"]["output_tokens"] == 3


class TestTools:
    ASK = "What is the weather in Paris?"

    def test_a_round_trip(self, sdk: openai.OpenAI, server: ServerProcess) -> None:
        options = {"model": server.model, "tools": [WEATHER], "temperature": 0}
        first = sdk.responses.create(**options, input=self.ASK, tool_choice="required")
        [call] = first.output
        assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed")
        assert set(json.loads(call.arguments)) == {"city"}
        history = [
            *user(self.ASK),
            *(item.to_dict() for item in first.output),
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": "Rain, 12 degrees.",
            },
        ]
        second = sdk.responses.create(**options, input=history, max_output_tokens=40)
        third = sdk.responses.create(
            **options, input=history[-1:], previous_response_id=first.id, max_output_tokens=40
        )
        assert third.usage.input_tokens == second.usage.input_tokens
        assert third.output_text == second.output_text

    def test_streamed(self, api: Api) -> None:
        options = {"tools": [WEATHER], "tool_choice": "required"}
        whole = respond(api, self.ASK, **options)
        events = stream(api, self.ASK, **options)
        final = events[-1]["response"]
        assert without_ids(final["output"]) == without_ids(whole["output"])
        [call] = final["output"]
        pieces = [
            event["delta"]
            for event in events
            if event["type"] == "response.function_call_arguments.delta"
        ]
        assert "".join(pieces) == call["arguments"]
        added = [e["item"] for e in events if e["type"] == "response.output_item.added"]
        assert [(item["id"], item["call_id"]) for item in added] == [(call["id"], call["call_id"])]

    def test_a_named_tool_and_allowed_tools(self, api: Api) -> None:
        ping = {"type": "function", "name": "ping", "parameters": None}
        named = {"type": "function", "name": "ping"}
        for choice in (named, {"type": "allowed_tools", "mode": "required", "tools": [named]}):
            response = respond(api, self.ASK, tools=[WEATHER, ping], tool_choice=choice)
            assert {item["name"] for item in response["output"]} == {"ping"}
            assert response["tool_choice"] == choice

    def test_hosted_tools_are_refused(self, api: Api) -> None:
        for kind in ("web_search", "custom", "mcp", "code_interpreter", "local_shell"):
            body = body_of(api, tools=[WEATHER, {"type": kind, "name": "x"}])
            error = api.refused(RESPONSES, body, kind)
            assert error["param"] == "tools[1].type"


class Weather(BaseModel):
    city: str = Field(max_length=12)
    degrees: int = Field(ge=-50, le=50)


def test_structured_output(sdk: openai.OpenAI, server: ServerProcess) -> None:
    response = sdk.responses.parse(
        model=server.model, input="Weather?", text_format=Weather, temperature=0
    )
    assert isinstance(response.output_parsed, Weather)
    with sdk.responses.stream(
        model=server.model, input="Weather?", text_format=Weather, temperature=0
    ) as events:
        final = events.get_final_response()
    assert final.output_parsed == response.output_parsed
    assert response.text.format.type == "json_schema"


def test_json_object(api: Api) -> None:
    response = respond(
        api, "Give me JSON.", text={"format": {"type": "json_object"}}, max_output_tokens=300
    )
    assert response["text"]["format"] == {"type": "json_object"}
    if response["status"] == "completed":
        assert isinstance(json.loads(text_of(response)), dict)


class TestReasoning:
    def test_content(self, sdk: openai.OpenAI, server: ServerProcess) -> None:
        response = sdk.responses.create(
            model=server.model, input="What is 2 plus 3?", temperature=0, **THINK
        )
        assert response.output[0].type == "reasoning"
        assert response.output[0].content[0].text
        assert response.usage.output_tokens_details.reasoning_tokens > 0
        assert response.reasoning.effort == "low"

    def test_streamed_is_whole(self, api: Api) -> None:
        for reasoning in ({"effort": "low"}, {"effort": "low", "summary": "auto"}):
            fields = {"reasoning": reasoning, "include": ["reasoning.encrypted_content"]}
            whole = respond(api, "What is 2 plus 3?", **fields)
            events = stream(api, "What is 2 plus 3?", **fields)
            final = events[-1]["response"]
            assert without_ids(final["output"]) == without_ids(whole["output"])
            kind = "reasoning_summary_text" if "summary" in reasoning else "reasoning_text"
            item = final["output"][0]
            pieces = [e["delta"] for e in events if e["type"] == f"response.{kind}.delta"]
            shown = item["summary"] if "summary" in reasoning else item["content"]
            assert "".join(pieces) == shown[0]["text"]

    def test_its_text_comes_back_in_any_form(self, api: Api) -> None:
        """A client may send back the content, the summary or the encrypted content."""
        prompts = []
        for summary in (None, "auto"):
            response = respond(
                api,
                "What is 2 plus 3?",
                reasoning={"effort": "low", "summary": summary},
                include=["reasoning.encrypted_content"],
            )
            output = response["output"]
            bare = [output[0] | {"content": None, "summary": []}, *output[1:]]
            for items in (output, bare):
                given = [*user("What is 2 plus 3?"), *items, *user("Sure?")]
                prompts.append(respond(api, given, max_output_tokens=1)["usage"]["input_tokens"])
        assert len(set(prompts)) == 1


def test_logprobs(sdk: openai.OpenAI, server: ServerProcess) -> None:
    options = {"model": server.model, "input": STORY, "temperature": 0, "max_output_tokens": 8}
    options |= {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = sdk.responses.create(**options)
    [part] = whole.output[0].content
    assert len(part.logprobs) == 8
    assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs)
    events = list(sdk.responses.create(**options, stream=True))
    streamed = [
        entry.token
        for event in events
        if event.type == "response.output_text.delta"
        for entry in event.logprobs
    ]
    assert streamed == [entry.token for entry in part.logprobs][: len(streamed)]
    assert events[-1].response.output[0].content[0].logprobs == part.logprobs


class TestStored:
    def test_the_sdks_calls(self, sdk: openai.OpenAI, server: ServerProcess) -> None:
        first = sdk.responses.create(model=server.model, input="Hello!", temperature=0)
        assert sdk.responses.retrieve(first.id) == first
        second = sdk.responses.create(
            model=server.model, input="And you?", previous_response_id=first.id, temperature=0
        )
        assert second.previous_response_id == first.id
        items = list(sdk.responses.input_items.list(second.id, order="asc", limit=2))
        assert [item.role for item in items] == ["user", "assistant", "user"]
        sdk.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            sdk.responses.retrieve(first.id)
        with pytest.raises(openai.BadRequestError, match="not found"):
            sdk.responses.create(model=server.model, input="x", previous_response_id=first.id)
        assert sdk.responses.retrieve(second.id) == second

    def test_store_false(self, sdk: openai.OpenAI, server: ServerProcess) -> None:
        response = sdk.responses.create(model=server.model, input="Hello!", store=False)
        assert response.to_dict()["store"] is False
        with pytest.raises(openai.NotFoundError, match="expired"):
            sdk.responses.retrieve(response.id)


class TestErrors:
    def test_params_are_the_clients(self, api: Api) -> None:
        image = [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]
        for body, param in (
            (body_of(api, [{"role": "user", "content": image}]), "input[0].content[0].type"),
            (body_of(api, [{"role": "nobody", "content": ""}]), "input[0].role"),
            (body_of(api, background=True), "background"),
            (body_of(api, max_output_tokens=0), "max_output_tokens"),
            (body_of(api, "word " * 5000), "input"),
            (body_of(api, max_output_tokens=10**6), "input"),
            ({"input": "x"}, "model"),
        ):
            assert api.refused(RESPONSES, body)["param"] == param

    def test_an_overflow_has_its_code(self, api: Api) -> None:
        error = api.refused(RESPONSES, body_of(api, "word " * 5000))
        assert error["code"] == "context_length_exceeded"
        assert error["message"].startswith("This model's maximum context length is ")

    def test_an_unknown_model(self, sdk: openai.OpenAI) -> None:
        with pytest.raises(openai.NotFoundError):
            sdk.responses.create(model="other", input="x")

    def test_a_failure_midway(self, faulty: Api) -> None:
        reply = faulty.post(
            RESPONSES,
            {"model": faulty.server.model, "input": STORY, "stream": True, "seed": FAIL_MIDWAY},
        )
        events = events_of(reply.body)
        assert events[-1]["type"] == "response.failed"
        assert events[-1]["response"]["status"] == "failed"
        assert events[-1]["response"]["error"]["code"] == "server_error"

    def test_keys(self, guarded: Api) -> None:
        reply = guarded.post(RESPONSES, {"input": "x"}, {"authorization": "Bearer wrong"})
        assert reply.status == 401
        assert check_error(reply)["code"] == "invalid_api_key"


def test_a_disconnect_frees_the_engine(api: Api) -> None:
    body = body_of(api, STORY, stream=True)
    with api.open(RESPONSES, body) as (_, reply):
        assert reply.status == 200
    api.wait_idle()


def test_async(async_sdk: Callable[[], openai.AsyncOpenAI], server: ServerProcess) -> None:
    async def run() -> str:
        async with async_sdk() as client:
            stream = await client.responses.create(
                model=server.model, input="Hello!", temperature=0, stream=True
            )
            return [event async for event in stream][-1].response.output_text

    assert asyncio.run(run())
