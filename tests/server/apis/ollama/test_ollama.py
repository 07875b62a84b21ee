"""Ollama's routes through the whole application."""

import json

import pytest
from ollama import ChatResponse, ListResponse, ProcessResponse, ShowResponse

from tests.support.asgi import ask
from tests.support.engines import AnsweringEngine, out

pytestmark = pytest.mark.anyio

USER = [{"role": "user", "content": "hi"}]
CHAT, GENERATE = "/api/chat", "/api/generate"
BODIES = [(CHAT, {"messages": USER}), (GENERATE, {"prompt": "hi"})]


def lines_of(exchange):
    assert exchange.status == 200, exchange.body
    assert exchange.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in exchange.body.splitlines()]


def error_of(exchange, status):
    assert exchange.status == status, exchange.body
    assert set(exchange.json) == {"error"}
    return exchange.json["error"]


async def test_a_chat(start_app):
    app = await start_app()
    lines = lines_of(await ask(app, "POST", CHAT, {"messages": USER}))
    assert "".join(line["message"]["content"] for line in lines) == "Hi there!"
    assert [line["done"] for line in lines] == [False, False, True]
    whole = await ask(app, "POST", CHAT, {"messages": USER, "stream": False})
    assert whole.headers["content-type"] == "application/json"
    assert ChatResponse(**whole.json).message.content == "Hi there!"


async def test_a_prompt(start_app):
    app = await start_app()
    lines = lines_of(await ask(app, "POST", GENERATE, {"prompt": "hi"}))
    assert "".join(line["response"] for line in lines) == "Hi there!"
    whole = await ask(app, "POST", GENERATE, {"prompt": "hi", "stream": False, "raw": True})
    assert whole.json["response"] == "Hi there!"


@pytest.mark.parametrize("path", [CHAT, GENERATE])
async def test_nothing_to_answer_loads_the_model(start_app, path):
    app = await start_app()
    [line] = lines_of(await ask(app, "POST", path, {}))
    assert (line["done"], line["done_reason"]) == (True, "load")
    whole = await ask(app, "POST", path, {"stream": False, "keep_alive": 0})
    assert whole.json["done_reason"] == "unload"


async def test_models(start_app):
    app = await start_app(served_model_names=("org/m",))
    [entry] = ListResponse(**(await ask(app, "GET", "/api/tags")).json).models
    [running] = ProcessResponse(**(await ask(app, "GET", "/api/ps")).json).models
    assert entry.model == running.model == "org/m"
    for body in ({"model": "org/m"}, {"name": "org/m"}, {"model": "org/m:latest", "verbose": True}):
        shown = ShowResponse(**(await ask(app, "POST", "/api/show", body)).json)
        assert "completion" in shown.capabilities
    assert (await ask(app, "GET", "/api/version")).json["version"]


@pytest.mark.parametrize("path", [CHAT, GENERATE, "/api/show"])
async def test_names(start_app, path):
    app = await start_app(served_model_names=("org/m",))
    body = {"model": "org/m:latest", "messages": USER} if path == CHAT else {"model": "org/m"}
    assert (await ask(app, "POST", path, body)).status == 200
    for other in ("other", "org/m:1b"):
        assert other in error_of(await ask(app, "POST", path, {"model": other}), 404)


@pytest.mark.parametrize(("path", "body"), BODIES)
async def test_unknown_options_are_ignored_and_named(start_app, path, body):
    options = {"num_gqa": 8, "rope_frequency_base": 1e4, "foo": [{}], "seed": 42.0}
    body = body | {"options": options, "bar": 1}
    reply = await ask(await start_app(), "POST", path, body)
    named = "bar, options.num_gqa, options.rope_frequency_base, options.foo"
    assert (reply.status, reply.headers["x-roseinfer-ignored"]) == (200, named)
    strict = await ask(await start_app(strict_fields=True), "POST", path, body)
    assert "Unknown parameter: '" in error_of(strict, 400)


@pytest.mark.parametrize(("path", "body"), BODIES)
async def test_errors(start_app, path, body):
    app = await start_app(max_body_size=1000, strict_schemas=True)
    wrong = await ask(app, "POST", path, body | {"options": {"temperature": "hot"}})
    assert "options.temperature" in error_of(wrong, 400)
    error_of(await ask(app, "POST", path, body | {"system": "x" * 1000}), 413)
    error_of(await ask(app, "GET", path), 405)
    schema = {"type": "object", "properties": {"a": {"type": "nothing"}}}
    refused = await ask(app, "POST", path, body | {"format": schema})
    assert "'format.type'" in error_of(refused, 400)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", f"/api/{name}") for name in ("pull", "push", "create", "copy")),
        ("DELETE", "/api/delete"),
    ],
)
async def test_what_the_server_does_not_do_is_refused_clearly(start_app, method, path):
    message = error_of(await ask(await start_app(), method, path, {"model": "m"}), 400)
    assert "server" in message
    assert "no such route" in error_of(await ask(await start_app(), "POST", "/api/absent", {}), 404)


@pytest.mark.parametrize("nothing", [{}, {"input": ""}, {"input": []}, {"input": None}])
async def test_an_embedding_of_nothing_loads_the_model(start_app, nothing):
    app = await start_app()
    answer = await ask(app, "POST", "/api/embed", nothing)
    assert (answer.status, answer.json["embeddings"]) == (200, [])
    assert answer.json["model"] == "roseinfer-tiny"
    old = {"prompt": nothing["input"]} if nothing.get("input") == "" else {}
    answer = await ask(app, "POST", "/api/embeddings", old)
    assert (answer.status, answer.json) == (200, {"embedding": []})
    error_of(await ask(app, "POST", "/api/embed", nothing | {"model": "other"}), 404)


@pytest.mark.parametrize(
    ("path", "body"), [("/api/embed", {"input": "x"}), ("/api/embeddings", {"prompt": "x"})]
)
async def test_a_model_that_generates_makes_no_vectors(start_app, path, body):
    assert "embeddings" in error_of(await ask(await start_app(), "POST", path, body), 400)


async def test_any_content_type_but_from_browsers(start_app):
    """LiteLLM sends none, and curl that of a form."""
    app = await start_app()
    for path, body in [*BODIES, ("/api/show", {})]:
        for headers in ({"x-x": "y"}, {"content-type": "application/x-www-form-urlencoded"}):
            assert (await ask(app, "POST", path, body, headers)).status == 200
            page = headers | {"origin": "http://localhost"}
            assert "Content-Type" in error_of(await ask(app, "POST", path, body, page), 415)


async def test_keys(start_app):
    app = await start_app(api_keys=("one",))
    headers = {"content-type": "application/json"}
    for path, body in BODIES:
        error_of(await ask(app, "POST", path, body, headers), 401)
        key = {"authorization": "Bearer one"}
        assert (await ask(app, "POST", path, body, headers | key)).status == 200
    error_of(await ask(app, "GET", "/api/tags"), 401)


async def test_a_full_queue(start_app):
    app = await start_app()
    budget = app.litestar.state.serving.admission.choices
    budget.take("127.0.0.1", budget.limit)
    error_of(await ask(app, "POST", CHAT, {"messages": USER}), 429)


async def test_a_failure_in_a_stream_is_its_last_line(start_app):
    def failing(request):
        begun = out(request.request_id, "Hi", token_ids=(1,), num_output_tokens=1)
        return [begun, out(request.request_id, error="broken")]

    app = await start_app(AnsweringEngine(failing))
    *_, last = lines_of(await ask(app, "POST", CHAT, {"messages": USER}))
    assert last == {"error": "broken"}


async def test_unknown_fields_are_reported(start_app):
    answer = await ask(await start_app(), "POST", CHAT, {"messages": USER, "brand_new": 1})
    assert answer.status == 200
    assert answer.headers["x-roseinfer-ignored"] == "brand_new"
