"""POST /v1/messages: the official anthropic SDK, llm-comply, and Claude Code's requests."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import llm_comply
import pytest
from llm_comply import runner
from llm_comply.config import ComplianceConfig
from llm_comply.schema import SpecLoader
from llm_comply.tests import get_tests
from pydantic import BaseModel

from compat_tests.support import claude_code
from compat_tests.support.anthropic_events import events_of, message_of
from compat_tests.support.api import Api, Json, user
from compat_tests.support.faults import FAIL_MIDWAY, STALL
from compat_tests.support.process import ServerProcess

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
ASK = "What is the weather in Paris?"
WEATHER: Json = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "unit": {"enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
}
PING: Json = {"name": "ping", "input_schema": {"type": "object", "properties": {}}}
XY: Json = {
    "type": "object",
    "properties": {"x": {"type": "boolean"}},
    "required": ["x"],
    "additionalProperties": False,
}


def options(server: ServerProcess, api_key: str = "unused") -> Json:
    """No retries, and every answer validated against the SDK's types."""
    return {
        "base_url": server.url,
        "api_key": api_key,
        "max_retries": 0,
        "timeout": 60,
        "_strict_response_validation": True,
    }


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(**options(server)) as client:
        yield client


@pytest.fixture
def create(client: anthropic.Anthropic, server: ServerProcess) -> Any:
    """Create a greedy message."""

    def create(content: Any = "Hello!", **fields: Any) -> Any:
        messages = content if isinstance(content, list) else user(content)
        given = {"max_tokens": 60, "extra_body": {"temperature": 0}} | fields
        return client.messages.create(model=server.model, messages=messages, **given)

    return create


def body_of(api: Api, content: Any = "Hello!", **fields: Any) -> Json:
    return {
        "model": api.server.model,
        "messages": user(content),
        "max_tokens": 60,
        "temperature": 0,
    } | fields


def message(api: Api, content: Any = "Hello!", **fields: Any) -> Json:
    reply = api.post(PATH, body_of(api, content, **fields))
    assert reply.status == 200, reply.text
    return reply.json


def without_ids(message: Json) -> Json:
    """What two equal answers have in common: the cache may have more the second time."""
    usage = message["usage"]
    usage["input_tokens"] += usage.pop("cache_read_input_tokens")
    blocks = [{k: v for k, v in block.items() if k != "id"} for block in message["content"]]
    return message | {"id": "", "content": blocks}


class TestMessages:
    def test_plain(self, create: Any, api: Api) -> None:
        found = create()
        assert found.type == "message"
        assert [block.type for block in found.content] == ["text"]
        assert found.content[0].text == api.chat_text(max_tokens=60)
        assert found.stop_reason == "end_turn"

    def test_the_same_tokens_as_through_chat(self, create: Any, api: Api) -> None:
        turns = [
            *user("My name is Ann."),
            {"role": "assistant", "content": "Hello, Ann."},
            *user("Who am I?"),
        ]
        found = create(turns, system="Be brief.")
        body = {"messages": [{"role": "system", "content": "Be brief."}, *turns], "max_tokens": 60}
        chat = api.ok("/v1/chat/completions", {"temperature": 0} | body)
        assert found.content[0].text == chat["choices"][0]["message"]["content"]
        usage = found.usage
        assert usage.input_tokens + usage.cache_read_input_tokens == chat["usage"]["prompt_tokens"]
        assert usage.output_tokens == chat["usage"]["completion_tokens"]
        body = {"model": api.server.model, "instructions": "Be brief.", "input": turns}
        response = api.ok("/v1/responses", {"temperature": 0, "max_output_tokens": 60} | body)
        assert response["output"][0]["content"][0]["text"] == found.content[0].text
        assert response["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
        assert response["usage"]["output_tokens"] == usage.output_tokens

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"stop_sequences": ["e"]},
            {"max_tokens": 3},
            {"thinking": {"type": "adaptive"}, "max_tokens": 160},
            {"thinking": {"type": "enabled", "budget_tokens": 10, "display": "omitted"}},
            {"tools": [WEATHER, PING], "max_tokens": 200},
            {"tools": [WEATHER, PING], "tool_choice": {"type": "any"}, "max_tokens": 200},
            {"output_config": {"format": {"type": "json_schema", "schema": XY}}},
        ],
    )
    def test_streamed_is_whole(self, api: Api, fields: Json) -> None:
        whole = message(api, ASK, **fields)
        reply = api.post(PATH, body_of(api, ASK, stream=True, **fields))
        assert (reply.header("content-type") or "").startswith("text/event-stream")
        assert without_ids(message_of(events_of(reply.body))) == without_ids(whole)

    def test_the_sdks_stream(
        self, client: anthropic.Anthropic, create: Any, server: ServerProcess
    ) -> None:
        given = {"model": server.model, "max_tokens": 60, "messages": user("Hello!")}
        with client.messages.stream(**given, extra_body={"temperature": 0}) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert text == final.content[0].text == create().content[0].text
        assert final.usage.output_tokens > 0

    def test_stop_sequences(self, create: Any) -> None:
        text = create().content[0].text
        stop = text[3:5]
        found = create(stop_sequences=["never this", stop])
        assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", stop)
        assert found.content[0].text == text[: text.index(stop)]

    def test_the_limit_of_tokens(self, create: Any) -> None:
        found = create(max_tokens=2)
        assert (found.stop_reason, found.usage.output_tokens) == ("max_tokens", 2)

    def test_a_full_context(self, narrow: Api) -> None:
        story = "Tell me a story. " * 110
        found = message(narrow, story, max_tokens=32_000, temperature=1, seed=1)
        if found["stop_reason"] == "model_context_window_exceeded":
            usage = found["usage"]
            assert (
                usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["output_tokens"]
                == 1024
            )

    def test_the_beginning_of_the_answer(self, create: Any) -> None:
        text = create().content[0].text
        begun = [*user("Hello!"), {"role": "assistant", "content": text[:4]}]
        assert create(begun).content[0].text

    def test_counted_tokens_are_those_of_the_answer(
        self, client: anthropic.Anthropic, create: Any, server: ServerProcess
    ) -> None:
        given = {"messages": user(ASK), "system": "Be brief.", "tools": [WEATHER]}
        count = client.messages.count_tokens(model=server.model, **given).input_tokens
        usage = create(ASK, system="Be brief.", tools=[WEATHER], max_tokens=1).usage
        assert count == usage.input_tokens + usage.cache_read_input_tokens


class TestThinking:
    def test_comes_first(self, create: Any) -> None:
        found = create(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=200)
        first = found.content[0]
        assert first.type == "thinking"
        assert first.thinking
        assert first.signature
        assert 0 < found.usage.output_tokens_details.thinking_tokens <= found.usage.output_tokens

    def test_has_a_budget(self, create: Any) -> None:
        found = create(thinking={"type": "enabled", "budget_tokens": 5}, max_tokens=100)
        assert found.usage.output_tokens_details.thinking_tokens <= 5 + 4

    def test_is_omitted_but_comes_back(self, create: Any, api: Api) -> None:
        shown = create(thinking={"type": "adaptive", "display": "summarized"}, max_tokens=200)
        hidden = create(thinking={"type": "adaptive", "display": "omitted"}, max_tokens=200)
        assert hidden.content[0].thinking == ""
        assert hidden.content[1:] == shown.content[1:]
        assert hidden.usage.output_tokens == shown.usage.output_tokens

        def count(found: Any) -> int:
            turns = [*user("Hello!"), {"role": "assistant", "content": found}, *user("Go on.")]
            return int(api.ok(COUNT, {"messages": turns})["input_tokens"])

        blocks = [found.model_dump()["content"] for found in (shown, hidden)]
        assert count(blocks[0]) == count(blocks[1])

    @pytest.mark.parametrize("thinking", [{"type": "disabled"}, None])
    def test_is_off(self, create: Any, thinking: Json | None) -> None:
        found = create(**({"thinking": thinking} if thinking else {}))
        assert [block.type for block in found.content] == ["text"]


class TestTools:
    @pytest.mark.parametrize(
        ("choice", "names"),
        [
            ({"type": "any"}, {"get_weather", "ping"}),
            ({"type": "tool", "name": "ping"}, {"ping"}),
            ({"type": "any", "disable_parallel_tool_use": True}, {"get_weather", "ping"}),
        ],
    )
    def test_a_required_call(self, create: Any, choice: Json, names: set[str]) -> None:
        for content in (ASK, "Good morning."):
            found = create(content, tools=[WEATHER, PING], tool_choice=choice, max_tokens=300)
            assert found.stop_reason == "tool_use"
            uses = [block for block in found.content if block.type == "tool_use"]
            assert {use.name for use in uses} <= names
            assert all(re.fullmatch("toolu_[A-Za-z0-9]{24}", use.id) for use in uses)
            assert all(isinstance(use.input, dict) for use in uses)
            assert len(uses) == 1 or "disable_parallel_tool_use" not in choice

    def test_none(self, create: Any) -> None:
        found = create(ASK, tools=[WEATHER], tool_choice={"type": "none"})
        assert [block.type for block in found.content] == ["text"]

    def test_a_round(self, create: Any) -> None:
        called = create(ASK, tools=[WEATHER], tool_choice={"type": "any"}, max_tokens=300)
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "Rain, 12 degrees."}
            for block in called.content
            if block.type == "tool_use"
        ]
        turns = [
            *user(ASK),
            {"role": "assistant", "content": called.content},
            {"role": "user", "content": results},
        ]
        found = create(turns, tools=[WEATHER], max_tokens=200)
        assert found.content
        assert found.stop_reason in {"end_turn", "tool_use", "max_tokens"}

    def test_the_sdks_runner(self, client: anthropic.Anthropic, server: ServerProcess) -> None:
        """It asks for a thread first, and sends the whole history when that is refused."""

        @anthropic.beta_tool
        def ping() -> str:
            """Ping."""
            return "pong"

        runner = client.beta.messages.tool_runner(
            model=server.model,
            max_tokens=100,
            messages=user("Ping!"),
            tools=[ping],
            max_iterations=2,
        )
        messages = list(runner)
        assert 1 <= len(messages) <= 2


class TestStructured:
    def test_a_schema_is_enforced(self, create: Any) -> None:
        form = {"format": {"type": "json_schema", "schema": XY}}
        text = create("Good morning.", output_config=form).content[0].text
        assert set(json.loads(text)) == {"x"}

    def test_the_sdk_parses(self, client: anthropic.Anthropic, server: ServerProcess) -> None:
        class Answer(BaseModel):
            x: bool

        found = client.messages.parse(
            model=server.model, max_tokens=60, messages=user("Hello!"), output_format=Answer
        )
        assert isinstance(found.parsed_output, Answer)


class TestErrors:
    def test_no_such_model(self, client: anthropic.Anthropic) -> None:
        with pytest.raises(anthropic.NotFoundError) as caught:
            client.messages.create(model="claude", max_tokens=5, messages=user("x"))
        assert caught.value.body["error"]["type"] == "not_found_error"
        assert caught.value.request_id

    @pytest.mark.parametrize(
        ("content", "named"),
        [
            ([{"type": "image", "source": {"type": "url", "url": "u"}}], "content[0].type"),
            ([{"type": "document", "source": {"type": "text", "data": "d"}}], "content[0].type"),
        ],
    )
    def test_a_wrong_request(self, create: Any, content: Any, named: str) -> None:
        with pytest.raises(anthropic.BadRequestError) as caught:
            create([{"role": "user", "content": content}])
        error = caught.value.body["error"]
        assert error["type"] == "invalid_request_error"
        assert named in error["message"]

    def test_too_long(self, create: Any) -> None:
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            create("rose " * 5000)

    def test_keys(self, guarded_server: ServerProcess) -> None:
        given = {"model": guarded_server.model, "max_tokens": 5, "messages": user("x")}
        with (
            anthropic.Anthropic(**options(guarded_server, "wrong")) as client,
            pytest.raises(anthropic.AuthenticationError) as caught,
        ):
            client.messages.create(**given)
        assert caught.value.body["error"]["type"] == "authentication_error"
        with anthropic.Anthropic(**options(guarded_server, "key-two")) as client:
            assert client.messages.create(**given).content

    def test_the_other_header_of_keys(self, guarded: Api) -> None:
        body = body_of(guarded, max_tokens=2)
        headers: dict[str, str | None] = {"authorization": None}
        assert guarded.post(PATH, body, headers).status == 401
        assert guarded.post(PATH, body, headers | {"x-api-key": "key-one"}).status == 200

    def test_a_failure_in_the_middle(self, faulty_server: ServerProcess) -> None:
        with anthropic.Anthropic(**options(faulty_server)) as client:
            stream = client.messages.create(
                model=faulty_server.model,
                max_tokens=40,
                messages=user("Tell me a story."),
                stream=True,
                extra_body={"temperature": 0, "seed": FAIL_MIDWAY},
            )
            with pytest.raises(anthropic.APIStatusError) as caught:
                list(stream)
        assert caught.value.body["error"]["type"] == "api_error"

    def test_silence_is_filled_with_pings(self, faulty: Api) -> None:
        body = body_of(faulty, "Tell me a story.", stream=True, max_tokens=12, seed=STALL)
        reply = faulty.post(PATH, body)
        assert reply.body.count(b"event: ping\n") > 1
        text = message_of(events_of(reply.body))["content"]
        assert text == message(faulty, "Tell me a story.", max_tokens=12)["content"]

    def test_a_client_that_leaves(self, api: Api) -> None:
        body = body_of(api, "Tell me a story.", stream=True, max_tokens=1500, temperature=1)
        with api.open(PATH, body):
            pass
        api.wait_idle()


class TestClaudeCode:
    def test_its_request(self, api: Api) -> None:
        body = claude_code.body(api.server.model, claude_code.question("Hello!"), max_tokens=60)
        reply = api.post(claude_code.PATH, body, claude_code.HEADERS)
        assert reply.status == 200, reply.text
        assert reply.header("request-id")
        found = message_of(events_of(reply.body))
        assert found["stop_reason"] in {"end_turn", "tool_use", "max_tokens"}
        assert all(
            block["thinking"] == "" for block in found["content"] if block["type"] == "thinking"
        )

    @pytest.mark.parametrize(
        "fields",
        [
            {"tools": []},
            {"thinking": {"type": "adaptive"}},
            {"tools": [claude_code.tool(name) for name in [*claude_code.NAMES, "A", "B", "C"]]},
        ],
    )
    def test_its_other_requests(self, api: Api, fields: Json) -> None:
        body = claude_code.body(api.server.model, claude_code.question("Hello!"), max_tokens=20)
        reply = api.post(
            claude_code.PATH, body | fields, claude_code.HEADERS | {"anthropic-beta": "x"}
        )
        assert reply.status == 200, reply.text

    def test_twenty_turns_from_the_cache(self, api: Api) -> None:
        """The line that differs in every request does not keep the prompt out of the cache."""
        fields = {"max_tokens": 8, "temperature": 0, "tools": [claude_code.tool("Read")]}
        turns = claude_code.question("Read the files. " * 128)
        for number in range(1, 21):
            body = claude_code.body(api.server.model, turns, number, **fields)
            reply = api.post(claude_code.PATH, body, claude_code.HEADERS)
            assert reply.status == 200, reply.text
            usage = message_of(events_of(reply.body))["usage"]
            cached = usage["cache_read_input_tokens"]
            if number > 1:
                assert cached >= 0.95 * (usage["input_tokens"] + cached), number
            use = {"type": "tool_use", "id": f"toolu_{number:024}", "name": "Read", "input": {}}
            result = {"type": "tool_result", "tool_use_id": use["id"], "content": f"File {number}."}
            turns = [
                *turns,
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [result]},
            ]


@pytest.fixture(scope="module")
def specification() -> SpecLoader:
    return SpecLoader(str(Path(llm_comply.__file__).with_name("specs") / "anthropic.json"))


@pytest.mark.filterwarnings("ignore:.*RefResolver.*:DeprecationWarning")
@pytest.mark.parametrize("case", [c for c in get_tests("anthropic") if c.id != "anth-image-input"])
def test_llm_comply(server: ServerProcess, specification: SpecLoader, case: Any) -> None:
    """Every check of llm-comply's but the one of images, at temperature 0.

    It would skip thinking, because the model's name is not Claude's.
    """
    greedy = dataclasses.replace(
        case,
        build_request=lambda config: case.build_request(config) | {"temperature": 0},
        skip_reason=None,
    )
    config = ComplianceConfig(f"{server.url}/v1", "unused", model=server.model)
    result = runner.TestRunner(config, [greedy], specification).run_one(greedy)
    assert not result.errors
    assert not result.warnings
