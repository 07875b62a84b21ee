"""POST /v1/messages through the whole application: answers, and errors in Anthropic's shape."""

import json

import anyio
import pytest
from anthropic.types import Message

from core.contract.errors import DeadlineExceeded, Unavailable
from server.settings.types import Rates
from tests.support.asgi import Exchange, ask
from tests.support.engines import AnsweringEngine, out

pytestmark = pytest.mark.anyio

TOOL = {"name": "f", "input_schema": {"type": "object"}}
MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
USER = [{"role": "user", "content": "hi"}]
BODY = {"max_tokens": 9, "messages": USER}
COUNTED = {"messages": USER}
JSON = {"content-type": "application/json"}
PATHS = [(MESSAGES, BODY), (MESSAGES + "?beta=true", BODY), (COUNT, COUNTED)]


def search(content):
    block = {"type": "search_result", "source": "s", "title": "t", "content": content}
    return {"role": "user", "content": [block]}


def error_of(exchange, status, type_):
    """The error of an exchange, which has Anthropic's shape."""
    assert exchange.status == status, exchange.body
    body = exchange.json
    assert set(body) == {"type", "error", "request_id"}
    assert (body["type"], body["error"]["type"]) == ("error", type_)
    assert body["error"]["message"]
    ids = {body["request_id"], exchange.headers["request-id"], exchange.headers["x-request-id"]}
    assert len(ids) == 1
    return body["error"]


async def test_a_whole_message(start_app):
    answer = await ask(await start_app(), "POST", MESSAGES, BODY)
    assert answer.status == 200
    message = Message.model_validate(answer.json, strict=True)
    assert [block.text for block in message.content] == ["Hi there!"]
    assert message.stop_reason == "end_turn"
    assert answer.headers["request-id"] == answer.headers["x-request-id"]


async def test_a_stream(start_app):
    answer = await ask(await start_app(), "POST", MESSAGES, BODY | {"stream": True})
    assert answer.headers["content-type"] == "text/event-stream"
    names = [line[7:] for line in answer.body.decode().splitlines() if line.startswith("event: ")]
    assert names == [
        "message_start",
        "ping",
        "content_block_start",
        *["content_block_delta"] * 2,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_tokens_are_counted(start_app):
    app = await start_app()
    answer = await ask(app, "POST", COUNT, COUNTED)
    usage = (await ask(app, "POST", MESSAGES, BODY)).json["usage"]
    assert answer.json == {"input_tokens": usage["input_tokens"]}


@pytest.mark.parametrize(("path", "body"), PATHS)
async def test_a_missing_and_a_wrong_key(start_app, path, body):
    app = await start_app(api_keys=("one",))
    for headers in ({}, {"x-api-key": "two"}, {"authorization": "Bearer two"}):
        refused = await ask(app, "POST", path, body, JSON | headers)
        error_of(refused, 401, "authentication_error")


@pytest.mark.parametrize(
    "headers", [{"x-api-key": "one"}, {"authorization": "Bearer one"}, {"x-api-key": " one "}]
)
async def test_both_headers_of_keys(start_app, headers):
    app = await start_app(api_keys=("one",))
    for path, body in PATHS:
        assert (await ask(app, "POST", path, body, JSON | headers)).status == 200


@pytest.mark.parametrize(("path", "body"), PATHS)
async def test_errors(start_app, path, body):
    app = await start_app(max_body_size=1000)
    unknown = await ask(app, "POST", path, body | {"model": "other"})
    assert "other" in error_of(unknown, 404, "not_found_error")["message"]
    large = await ask(app, "POST", path, body | {"system": "x" * 1000})
    error_of(large, 413, "request_too_large")
    wrong = await ask(app, "POST", path, body | {"messages": [{"role": "tool", "content": ""}]})
    assert "messages[0].role" in error_of(wrong, 400, "invalid_request_error")["message"]
    error_of(await ask(app, "POST", path, b"{"), 400, "invalid_request_error")
    text = await ask(app, "POST", path, b"{}", {"content-type": "text/plain"})
    error_of(text, 415, "invalid_request_error")
    error_of(await ask(app, "GET", path), 405, "invalid_request_error")


@pytest.mark.parametrize(("path", "body"), PATHS)
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [TOOL, {"name": "g"}]}, "tools[1].input_schema"),
        ({"tools": [{"name": "g", "type": "custom"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "g", "input_schema": None}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "g", "defer_loading": True}]}, "tools[0].input_schema"),
        ({"output_format": {"schema": {}}}, "output_format.type"),
        ({"output_config": {"format": {"schema": {}}}}, "output_config.format.type"),
        ({"system": [{"text": "x"}]}, "system[0].type"),
        ({"messages": [search([{"text": "x"}])]}, "messages[0].content[0].content[0].type"),
    ],
)
async def test_what_the_api_requires(start_app, path, body, fields, param):
    refused = await ask(await start_app(), "POST", path, body | fields)
    error = error_of(refused, 400, "invalid_request_error")
    assert f"Missing required parameter: '{param}'." in error["message"]
    assert error["details"] == {"error_code": "missing_required_parameter", "param": param}


async def test_another_type_where_only_one_is_allowed(start_app):
    for fields in (
        {"system": [{"type": "image", "text": "x"}]},
        {"output_format": {"type": "json", "schema": {}}},
    ):
        [name] = fields
        refused = await ask(await start_app(), "POST", MESSAGES, BODY | fields)
        assert f"Invalid '{name}" in error_of(refused, 400, "invalid_request_error")["message"]


async def test_a_route_that_does_not_exist(start_app):
    answer = await ask(await start_app(), "POST", "/v1/messages/batches", {})
    error_of(answer, 404, "not_found_error")


async def test_the_field_at_fault_has_its_name_in_this_api(start_app):
    app = await start_app(strict_schemas=True)
    schema = {"type": "object", "properties": {"a": {"type": "nothing"}}}
    form = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    error = error_of(await ask(app, "POST", MESSAGES, BODY | form), 400, "invalid_request_error")
    assert error["details"]["param"] == "output_config.format"
    del_ = {name: value for name, value in BODY.items() if name != "max_tokens"}
    error = error_of(await ask(app, "POST", MESSAGES, del_), 400, "invalid_request_error")
    assert "max_tokens" in error["message"]


async def test_a_prompt_that_is_too_long(start_app):
    body = BODY | {"messages": [{"role": "user", "content": "x" * 5000}]}
    error = error_of(
        await ask(await start_app(), "POST", MESSAGES, body), 400, "invalid_request_error"
    )
    assert error["message"].startswith("prompt is too long: ")
    assert error["details"]["error_code"] == "context_length_exceeded"


async def test_a_full_queue(start_app):
    app = await start_app()
    budget = app.litestar.state.serving.admission.choices
    budget.take("127.0.0.1", budget.limit)
    upload = Exchange("POST", MESSAGES, chunks=[], headers=JSON)
    await upload.run(app)
    error_of(upload, 429, "rate_limit_error")
    ids = {upload.headers[name] for name in ("x-request-id", "request-id")}
    assert ids == {upload.json["request_id"]}


async def test_a_rate(start_app):
    app = await start_app(rate_limit=Rates(requests=1))
    assert (await ask(app, "POST", MESSAGES, BODY)).status == 200
    limited = await ask(app, "POST", MESSAGES, BODY)
    error_of(limited, 429, "rate_limit_error")
    assert "retry-after" in limited.headers


async def test_a_server_that_drains(start_app):
    app = await start_app()
    await app.bridge.drain(1)
    for path, body in PATHS:
        error_of(await ask(app, "POST", path, body), 503, "overloaded_error")


async def test_a_failure_before_and_in_a_stream(start_app):
    def failing(request):
        begun = [out(request.request_id, "Hi", token_ids=(1,), num_output_tokens=1)]
        return [*begun[: request.params.max_tokens - 1], out(request.request_id, error="broken")]

    app = await start_app(AnsweringEngine(failing))
    first = await ask(app, "POST", MESSAGES, BODY | {"max_tokens": 1, "stream": True})
    error_of(first, 500, "api_error")
    later = await ask(app, "POST", MESSAGES, BODY | {"stream": True})
    assert later.status == 200
    *_, event, nothing = later.body.split(b"\n\n")
    assert nothing == b""
    name, data = event.split(b"\n")
    assert name == b"event: error"
    assert json.loads(data[6:])["error"] == {"type": "api_error", "message": "broken"}


@pytest.mark.parametrize(
    ("error", "type_"),
    [
        (DeadlineExceeded("The time is over."), "timeout_error"),
        (Unavailable("The server is shutting down."), "overloaded_error"),
    ],
)
async def test_what_ends_a_stream_is_the_type_of_its_error(start_app, engine, error, type_):
    app = await start_app(engine)
    exchange = Exchange("POST", MESSAGES, chunks=[json.dumps(BODY | {"stream": True}).encode()])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        await engine.say(out(engine.added[0].request_id, "half"))
        [stream] = app.bridge._streams
        app.bridge.fail(stream, error)
        await exchange.done()
    *_, event, _ = exchange.body.split(b"\n\n")
    found = json.loads(event.partition(b"data: ")[2])["error"]
    assert found == {"type": type_, "message": str(error)}
    engine.step_with()
    await engine.until(lambda e: not e.live)


async def test_a_stream_that_the_shutdown_ends(start_app, engine):
    app = await start_app(engine)
    exchange = Exchange("POST", MESSAGES, chunks=[json.dumps(BODY | {"stream": True}).encode()])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        await engine.say(out(engine.added[0].request_id, "half"))
        await app.bridge.drain(0)
        await exchange.done()
    *_, event, _ = exchange.body.split(b"\n\n")
    assert json.loads(event.partition(b"data: ")[2])["error"]["type"] == "overloaded_error"
    engine.step_with()
    await engine.until(lambda e: not e.live)


async def test_threads(start_app):
    answer = await ask(await start_app(), "POST", MESSAGES, BODY | {"thread": {"type": "create"}})
    error = error_of(answer, 400, "invalid_request_error")
    assert error["details"]["error_code"] == "thread_unsupported_request"


async def test_unknown_fields_are_reported_or_refused(start_app):
    body = BODY | {"brand_new": 1}
    answer = await ask(await start_app(), "POST", MESSAGES, body)
    assert answer.status == 200
    assert answer.headers["x-roseinfer-ignored"] == "brand_new"
    strict = await ask(await start_app(strict_fields=True), "POST", MESSAGES, body)
    assert "brand_new" in error_of(strict, 400, "invalid_request_error")["message"]


async def test_a_client_that_leaves_frees_its_request(start_app, engine):
    app = await start_app(engine)
    exchange = Exchange("POST", MESSAGES, chunks=[json.dumps(BODY | {"stream": True}).encode()])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        exchange.disconnect()
        await exchange.done()
    engine.step_with()
    await engine.until(lambda e: e.aborted)
    assert not engine.live
    assert not app.bridge._routes
