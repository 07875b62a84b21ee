"""Ollama's API with the official ollama SDK."""

import json
from collections.abc import Iterator
from typing import Any

import ollama
import pytest

from compat_tests.support.api import Api, Json, user
from compat_tests.support.faults import FAIL_MIDWAY, STALL
from compat_tests.support.process import ServerProcess

GREEDY: Json = {"temperature": 0, "num_predict": 60}
WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
XY: Json = {
    "type": "object",
    "properties": {"x": {"type": "boolean"}},
    "required": ["x"],
    "additionalProperties": False,
}


def connected(server: ServerProcess, **options: Any) -> Iterator[ollama.Client]:
    client = ollama.Client(server.url, trust_env=False, **options)
    yield client
    client._client.close()


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[ollama.Client]:
    yield from connected(server)


@pytest.fixture
def chat(client: ollama.Client, server: ServerProcess) -> Any:
    """A greedy chat."""

    def chat(content: Any = "Hello!", **fields: Any) -> Any:
        messages = content if isinstance(content, list) else user(content)
        options = GREEDY | fields.pop("options", {})
        return client.chat(server.model, messages, options=options, **fields)

    return chat


def test_the_same_tokens_as_through_chat(chat: Any, api: Api) -> None:
    turns = [{"role": "system", "content": "Be brief."}, *user("Who are you?")]
    found = chat(turns)
    body = {"messages": turns, "temperature": 0, "max_tokens": 60}
    same = api.ok("/v1/chat/completions", body)
    assert found.message.content == same["choices"][0]["message"]["content"]
    assert found.prompt_eval_count == same["usage"]["prompt_tokens"]
    assert found.eval_count == same["usage"]["completion_tokens"]
    assert found.done_reason == same["choices"][0]["finish_reason"]
    assert found.total_duration > 0
    assert found.eval_duration > 0


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"format": XY},
        {"format": "json"},
        {"think": True},
        {"tools": [WEATHER]},
        {"options": {"stop": ["e"]}},
    ],
)
def test_streamed_is_whole(chat: Any, fields: Json) -> None:
    whole = chat(**fields).message
    parts = [part.message for part in chat(stream=True, **fields)]
    assert "".join(part.content or "" for part in parts) == whole.content
    assert "".join(part.thinking or "" for part in parts) == (whole.thinking or "")
    calls = [call for part in parts for call in part.tool_calls or ()]
    assert calls == list(whole.tool_calls or ())


def test_a_schema_is_enforced(chat: Any) -> None:
    assert set(json.loads(chat("Good morning.", format=XY).message.content)) == {"x"}


def test_thinking_is_parted(chat: Any) -> None:
    assert chat(think=True, options={"num_predict": 160}).message.thinking
    assert not chat(think=False).message.thinking


def test_a_round_of_calls(chat: Any) -> None:
    call = {"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
    turns = [
        *user("What is the weather in Paris?"),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "Rain.", "tool_name": "get_weather"},
    ]
    assert chat(turns, tools=[WEATHER]).done


def test_a_prompt(client: ollama.Client, server: ServerProcess, api: Api) -> None:
    found = client.generate(server.model, "Hello!", options=GREEDY)
    assert found.response == api.chat_text(max_tokens=60)
    raw = client.generate(server.model, "The capital of", raw=True, options=GREEDY)
    assert raw.response == api.text("The capital of", max_tokens=60)
    streamed = client.generate(server.model, "Hello!", options=GREEDY, stream=True)
    assert "".join(part.response for part in streamed) == found.response


def test_models(client: ollama.Client, server: ServerProcess) -> None:
    [entry] = client.list().models
    [running] = client.ps().models
    assert entry.model == running.model == server.model
    shown = client.show(f"{server.model}:latest")
    assert {"completion", "tools", "thinking"} <= set(shown.capabilities)
    assert shown.modelinfo["general.architecture"] == "qwen3"
    assert shown.modelinfo["qwen3.context_length"] == running.context_length


def test_errors(client: ollama.Client, server: ServerProcess) -> None:
    with pytest.raises(ollama.ResponseError) as caught:
        client.chat("absent", user("x"))
    assert (caught.value.status_code, "absent" in caught.value.error) == (404, True)
    with pytest.raises(ollama.ResponseError, match="images") as caught:
        client.chat(server.model, [user("x")[0] | {"images": [b"hi"]}])
    assert caught.value.status_code == 400
    for refused in (client.pull, client.push, client.delete):
        with pytest.raises(ollama.ResponseError, match="one model"):
            refused(server.model)
    with pytest.raises(ollama.ResponseError, match="embeddings"):
        client.embed(server.model, "x")


def test_a_failure_in_a_stream(faulty_server: ServerProcess) -> None:
    for client in connected(faulty_server):
        options = {"temperature": 0, "seed": FAIL_MIDWAY}
        stream = client.chat(
            faulty_server.model, user("Tell me a story."), options=options, stream=True
        )
        with pytest.raises(ollama.ResponseError):
            list(stream)


def test_silence_is_filled(faulty_server: ServerProcess, faulty: Api) -> None:
    for client in connected(faulty_server):
        options = {"temperature": 0, "seed": STALL, "num_predict": 12}
        stream = client.chat(
            faulty_server.model, user("Tell me a story."), options=options, stream=True
        )
        parts = [part.message.content or "" for part in stream]
    assert parts.count("") > 1
    assert "".join(parts) == faulty.chat_text("Tell me a story.", max_tokens=12)


def test_keys(guarded_server: ServerProcess) -> None:
    for client in connected(guarded_server):
        with pytest.raises(ollama.ResponseError) as caught:
            client.list()
        assert caught.value.status_code == 401
    for client in connected(guarded_server, headers={"Authorization": "Bearer key-one"}):
        assert client.list().models


def test_a_client_that_leaves(api: Api) -> None:
    body = {"messages": user("Tell me a story."), "options": {"num_predict": 1500}}
    with api.open("/api/chat", body):
        pass
    api.wait_idle()
