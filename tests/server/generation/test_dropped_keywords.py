"""Keywords of schemas that are not enforced: every API names them wherever people look."""

from __future__ import annotations

import json

import pytest
from anthropic.types import Message, RawMessageDeltaEvent
from ollama import ChatResponse
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from server.http import ignored_fields
from tests.support.asgi import ask

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {"email": {"type": "string", "pattern": "(?!x)"}},
    "required": ["email"],
}
USER = [{"role": "user", "content": "hi"}]


def function(**fields):
    return {"name": "share", "parameters": SCHEMA} | fields


def tool(**fields):
    return {"type": "function", "function": function(**fields)}


def spec(**fields):
    return {"name": "n", "schema": SCHEMA} | fields


def chat_format(**fields):
    return {"response_format": {"type": "json_schema", "json_schema": spec(**fields)}}


def text_format(**fields):
    return {"text": {"format": {"type": "json_schema"} | spec(**fields)}}


CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
CLAUDE = {"messages": USER, "max_tokens": 9}
ASKED = [
    (CHAT, {"messages": USER} | chat_format(), "response_format.pattern"),
    (CHAT, {"messages": USER} | chat_format(strict=None), "response_format.pattern"),
    (CHAT, {"messages": USER} | chat_format(strict=False), "response_format.pattern"),
    (CHAT, {"messages": USER, "tools": [tool()]}, "tools.share.pattern"),
    (CHAT, {"messages": USER, "tools": [tool(strict=False)]}, "tools.share.pattern"),
    (CHAT, {"messages": USER, "functions": [function()]}, "tools.share.pattern"),
    (CHAT, {"messages": USER, "guided_json": SCHEMA}, "guided_json.pattern"),
    (COMPLETIONS, {"prompt": "hi"} | chat_format(), "response_format.pattern"),
    (
        COMPLETIONS,
        {"prompt": "hi", "structured_outputs": {"json": SCHEMA}},
        "structured_outputs.pattern",
    ),
    (RESPONSES, {"input": "hi", "model": "roseinfer-tiny"} | text_format(), "text.format.pattern"),
    (
        RESPONSES,
        {"input": "hi", "model": "roseinfer-tiny", "tools": [tool() | function()]},
        "tools.share.pattern",
    ),
    (
        MESSAGES,
        CLAUDE | {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        "output_config.format.pattern",
    ),
    (
        MESSAGES,
        CLAUDE | {"output_format": {"type": "json_schema", "schema": SCHEMA}},
        "output_format.pattern",
    ),
    (
        MESSAGES,
        CLAUDE | {"tools": [{"name": "share", "input_schema": SCHEMA}]},
        "tools.share.pattern",
    ),
    ("/api/chat", {"messages": USER, "format": SCHEMA}, "format.pattern"),
    ("/api/chat", {"messages": USER, "tools": [tool()]}, "tools.share.pattern"),
    ("/api/generate", {"prompt": "hi", "format": SCHEMA}, "format.pattern"),
    ("/api/generate", {"prompt": "hi", "raw": True, "format": SCHEMA}, "format.pattern"),
]
PATHS = [f"{path} {name}" for path, _, name in ASKED]
MODELS = {
    CHAT: ChatCompletion,
    COMPLETIONS: Completion,
    RESPONSES: Response,
    MESSAGES: Message,
    "/api/chat": ChatResponse,
}


@pytest.fixture(autouse=True)
def _nothing_was_logged(monkeypatch):
    monkeypatch.setattr(ignored_fields, "_logged", set())


@pytest.mark.parametrize(("path", "body", "name"), ASKED, ids=PATHS)
async def test_a_whole_answer_names_them(start_app, caplog, path, body, name):
    app = await start_app(tool_call_parser="hermes")
    for _ in range(2):  # compiled, and known
        answer = await ask(app, "POST", path, body | {"stream": False})
        assert answer.status == 200, answer.body
        assert answer.headers["x-roseinfer-ignored"] == name
        assert answer.json["warnings"] == [name]
    if path in MODELS:
        MODELS[path].model_validate(answer.json)
    assert [r.getMessage() for r in caplog.records if "ignoring" in r.getMessage()] == [
        f"ignoring '{name}' of requests"
    ]
    records = (await ask(app, "GET", "/requests")).json["data"]
    assert [r["ignored"] for r in records if r["route"] == path] == [[name], [name]]


def events_of(exchange):
    """The JSON of each event or line of a stream."""
    lines = exchange.body.decode().splitlines()
    texts = [line.removeprefix("data: ") for line in lines if not line.startswith("event:")]
    return [json.loads(text) for text in texts if text.startswith("{")]


@pytest.mark.parametrize(("path", "body", "name"), ASKED, ids=PATHS)
async def test_the_end_of_a_stream_names_them(start_app, path, body, name):
    app = await start_app(tool_call_parser="hermes")
    exchange = await ask(app, "POST", path, body | {"stream": True})
    assert exchange.headers["x-roseinfer-ignored"] == name
    *others, last = events_of(exchange)
    if path == MESSAGES:
        last = others.pop()
        RawMessageDeltaEvent.model_validate(last)
    elif path == CHAT:
        ChatCompletionChunk.model_validate(last)
    if path == RESPONSES:
        assert last["response"]["warnings"] == [name]
    else:
        assert last["warnings"] == [name]
    assert not any("warnings" in event for event in others)


async def test_the_usage_chunk_names_them_too(start_app):
    body = {"messages": USER, "stream": True, "stream_options": {"include_usage": True}}
    events = events_of(await ask(await start_app(), "POST", CHAT, body | chat_format()))
    assert [event.get("warnings") for event in events[-2:]] == [["response_format.pattern"]] * 2
    assert events[-1]["choices"] == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body", "name"), ASKED, ids=PATHS)
async def test_a_sound_schema_has_no_warnings(start_app, path, body, name, stream):
    sound = json.loads(json.dumps(body).replace('"pattern": "(?!x)"', '"maxLength": 5.0'))
    exchange = await ask(await start_app(), "POST", path, sound | {"stream": stream})
    assert exchange.status == 200, exchange.body
    assert "x-roseinfer-ignored" not in exchange.headers
    assert b"warnings" not in exchange.body
    assert name


@pytest.mark.parametrize(("path", "body", "name"), ASKED, ids=PATHS)
async def test_strict_schemas_refuses_them(start_app, path, body, name):
    app = await start_app(strict_schemas=True, tool_call_parser="hermes")
    for _ in range(2):
        answer = await ask(app, "POST", path, body)
        assert answer.status == 400
        assert f"'{name}'" in answer.body.decode()


STRICT = [
    (CHAT, {"messages": USER} | chat_format(strict=True), "response_format"),
    (CHAT, {"messages": USER, "tools": [tool(strict=True)]}, "tools"),
    (COMPLETIONS, {"prompt": "hi"} | chat_format(strict=True), "response_format"),
    (
        RESPONSES,
        {"input": "hi", "model": "roseinfer-tiny"} | text_format(strict=True),
        "text.format",
    ),
    (
        RESPONSES,
        {"input": "hi", "model": "roseinfer-tiny", "tools": [tool() | function(strict=True)]},
        "tools",
    ),
    (
        MESSAGES,
        CLAUDE | {"tools": [{"name": "share", "input_schema": SCHEMA, "strict": True}]},
        "tools",
    ),
]


@pytest.mark.parametrize(("path", "body", "param"), STRICT)
async def test_strict_true_is_refused_with_tool_and_keyword(start_app, path, body, param):
    answer = await ask(await start_app(tool_call_parser="hermes"), "POST", path, body)
    assert answer.status == 400
    error = answer.json["error"]
    assert (error.get("param") or error["details"]["param"]) == param
    assert "'pattern'" in error["message"]
    assert ("tool 'share'" in error["message"]) == (param == "tools")
    assert "look-around" in error["message"]
    assert "compile" not in error["message"]


async def test_many_names_are_counted(start_app):
    schema = {"properties": {f"p{i}": "no schema" for i in range(70)}}
    answer = await ask(await start_app(), "POST", CHAT, {"messages": USER, "guided_json": schema})
    assert len(answer.json["warnings"]) == 65
    assert answer.json["warnings"][-1] == "+6"
    assert answer.headers["x-roseinfer-ignored"].endswith(", +49")


async def test_a_long_name_of_a_tool_keeps_its_keyword(start_app):
    long = tool(name="t" * 64)
    app = await start_app(tool_call_parser="hermes")
    answer = await ask(app, "POST", CHAT, {"messages": USER, "tools": [long]})
    assert answer.json["warnings"] == [f"tools.{'t' * 64}.pattern"]
    assert answer.headers["x-roseinfer-ignored"] == f"tools.{'t' * 64}.pattern"
