"""The routes of the Responses API, over the whole application."""

import logging
import signal

import anyio
import anyio.lowlevel
import msgspec
import pytest
from openai.types.responses import ResponseItemList

from server.apis.responses.store import StoredResponse
from server.settings.key_file import KeyFile
from tests.support.asgi import Exchange, ask
from tests.support.engines import AnsweringEngine, out, words
from tests.support.responses import checked_response, events_of

pytestmark = pytest.mark.anyio

URL = "/v1/responses"
MODEL = "roseinfer-tiny"


@pytest.fixture
async def app(start_app):
    return await start_app(served_model_names=(MODEL,))


async def create(app, headers=None, **fields):
    given = {"content-type": "application/json"} | (headers or {})
    exchange = await ask(app, "POST", URL, {"model": MODEL, "input": "hi"} | fields, given)
    assert exchange.status == 200, exchange.body
    return exchange


async def test_whole(app):
    exchange = await create(app)
    response = checked_response(exchange.body)
    assert response["model"] == MODEL
    assert response["output"][0]["content"][0]["text"] == "Hi there!"
    assert exchange.headers["content-type"] == "application/json"


async def test_streamed(app):
    exchange = await create(app, stream=True)
    assert exchange.headers["content-type"] == "text/event-stream"
    events = events_of(exchange.body)
    assert events[-1]["type"] == "response.completed"
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert deltas == ["Hi", " there!"]


async def test_a_response_is_kept_as_it_was_sent(app):
    for stream in (False, True):
        exchange = await create(app, stream=stream)
        sent = (
            events_of(exchange.body)[-1]["response"] if stream else checked_response(exchange.body)
        )
        kept = await ask(app, "GET", f"{URL}/{sent['id']}")
        assert kept.status == 200
        assert kept.headers["content-type"] == "application/json"
        assert checked_response(kept.body) == sent


async def test_a_deleted_response_is_gone(app):
    response = (await create(app)).json
    path = f"{URL}/{response['id']}"
    deleted = await ask(app, "DELETE", path)
    assert deleted.json == {"id": response["id"], "object": "response", "deleted": True}
    for method in ("GET", "DELETE"):
        gone = await ask(app, method, path)
        assert gone.status == 404
        assert gone.json["error"]["code"] == "response_not_found"
    assert (await ask(app, "GET", f"{path}/input_items")).status == 404
    again = await ask(
        app, "POST", URL, {"model": MODEL, "input": "x", "previous_response_id": response["id"]}
    )
    assert again.status == 400
    assert again.json["error"]["code"] == "previous_response_not_found"
    assert again.json["error"]["param"] == "previous_response_id"


async def test_input_items(app):
    first = (await create(app, input="one")).json
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "two"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "42"},
        {"type": "reasoning", "id": "rs_9", "summary": [], "content": []},
    ]
    second = (await create(app, input=items, previous_response_id=first["id"])).json
    exchange = await ask(app, "GET", f"{URL}/{second['id']}/input_items?order=asc")
    ResponseItemList.model_validate(exchange.json, strict=True)
    found = exchange.json["data"]
    assert [item["type"] for item in found] == [
        "message",
        "message",
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
    ]
    assert found[1] == first["output"][0]
    assert found[2]["content"] == [{"type": "input_text", "text": "two"}]
    page = (await ask(app, "GET", f"{URL}/{second['id']}/input_items?limit=2")).json
    assert page["data"] == found[:-3:-1]
    assert page["has_more"]


async def test_wrong_queries_are_refused(app):
    response = (await create(app)).json
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=msg_0"):
        exchange = await ask(app, "GET", f"{URL}/{response['id']}/input_items?{query}")
        assert exchange.status == 400, query
        assert exchange.json["error"]["type"] == "invalid_request_error"
    exchange = await ask(app, "GET", f"{URL}/{response['id']}?stream=true")
    assert exchange.json["error"]["param"] == "stream"


async def test_errors(app):
    for body, status, param in (
        ({"input": "hi"}, 400, "model"),
        ({"model": "other", "input": "hi"}, 404, None),
        ({"model": MODEL}, 400, "input"),
        ({"model": MODEL, "input": [{"role": "user", "content": 5}]}, 400, "input[0].content"),
        ({"model": MODEL, "input": [{"role": "tool", "content": ""}]}, 400, "input[0].role"),
        ({"model": MODEL, "input": "hi", "temperature": 3}, 400, "temperature"),
        ({"model": MODEL, "input": "hi", "tools": [{"type": "mcp"}]}, 400, "tools[0].type"),
        ({"model": MODEL, "input": "hi", "text": {"format": {"type": "x"}}}, 400, ...),
    ):
        exchange = await ask(app, "POST", URL, body)
        error = exchange.json["error"]
        assert (exchange.status, error["type"]) == (status, "invalid_request_error"), body
        assert param in {error["param"], ...}, error


async def test_a_schema_that_cannot_be_compiled_names_the_clients_field(app):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}
    wanted = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    exchange = await ask(app, "POST", URL, {"model": MODEL, "input": "hi", "text": wanted})
    assert exchange.status == 400
    assert exchange.json["error"]["param"] == "text.format"


async def test_unknown_fields_are_reported(app):
    exchange = await create(app, nonsense=1)
    assert exchange.headers["x-roseinfer-ignored"] == "nonsense"


async def test_keys_do_not_share_responses(start_app):
    app = await start_app(served_model_names=(MODEL,), api_keys=("one", "two"))
    one, two = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
    response = (await create(app, one)).json
    path = f"{URL}/{response['id']}"
    assert (await ask(app, "GET", path, headers=two)).status == 404
    assert (await ask(app, "DELETE", path, headers=two)).status == 404
    assert (await ask(app, "GET", path)).status == 401
    assert (await ask(app, "GET", path, headers=one)).status == 200


async def test_after_a_change_of_keys_each_has_its_own_responses(start_app, tmp_path, caplog, soon):
    file = tmp_path / "keys"
    file.write_text("one\ntwo\n")
    app = await start_app(served_model_names=(MODEL,), api_key_file=KeyFile.read(str(file)))
    one, two = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
    paths = [f"{URL}/{(await create(app, key)).json['id']}" for key in (one, two)]
    file.write_text("two\nthree\n")
    with caplog.at_level(logging.INFO, logger="roseinfer.server"), soon():
        signal.raise_signal(signal.SIGHUP)
        while "read the API keys again" not in caplog.messages:
            await anyio.lowlevel.checkpoint()
    three = {"authorization": "Bearer three"}
    found = [[(await ask(app, "GET", p, headers=k)).status for p in paths] for k in (two, three)]
    assert found == [[404, 200], [404, 404]]


class TestStoredBytes:
    """What a request brings from the store costs as if its body contained it."""

    @pytest.fixture
    def seen(self):
        """Note the size that a lane is chosen by, and the bytes that are held then."""

        def seen(app):
            serving, found = app.litestar.state.serving, []
            of_size = serving.pools.of_size

            def noted(num_bytes):
                found.append((num_bytes, serving.admission.memory.held))
                return of_size(num_bytes)

            serving.pools.of_size = noted
            return found

        return seen

    async def test_they_choose_the_lane_and_are_held(self, app, seen):
        serving = app.litestar.state.serving
        items = [{"role": "user", "content": "x" * 10**6}, {"role": "assistant", "content": "y"}]
        data = tuple(map(msgspec.json.encode, items))
        stored = StoredResponse(id="r", body=b"", items=data, output_ids=("m",))
        app.litestar.state.response_store.put("127.0.0.1", stored)
        found = seen(app)
        await create(app, previous_response_id="r", truncation="auto")
        await create(app, input=[{"type": "item_reference", "id": "m"}] * 3)
        await create(app)
        (all_bytes, all_held), (three_bytes, three_held), (none_bytes, none_held) = found
        assert all_held > all_bytes > 10**6
        assert three_held > three_bytes > none_bytes + 3 * len(data[1])
        assert none_bytes < 100 < none_held
        assert serving.admission.memory.held == 0

    async def test_above_the_limit_of_a_body_they_are_refused(self, start_app):
        app = await start_app(
            AnsweringEngine(words("a" * 100)), served_model_names=(MODEL,), max_body_size=500
        )
        first = (await create(app, input="x" * 250)).json
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        for fields, param in (
            ({"input": [reference] * 3}, "input"),
            ({"input": "x", "previous_response_id": first["id"]}, "previous_response_id"),
        ):
            exchange = await ask(app, "POST", URL, {"model": MODEL} | fields)
            error = exchange.json["error"]
            assert (exchange.status, error["param"]) == (400, param)
            assert error["code"] == "stored_items_too_large"
            assert " 500 bytes" in error["message"]
        assert (await create(app, input=[reference])).status == 200


async def test_a_server_that_keeps_nothing(start_app):
    app = await start_app(served_model_names=(MODEL,), max_stored_responses=0)
    response = (await create(app)).json
    assert response["store"] is False
    gone = await ask(app, "GET", f"{URL}/{response['id']}")
    assert gone.status == 404
    assert "keeps no responses" in gone.json["error"]["message"]


async def test_a_limit_of_tokens(start_app):
    app = await start_app(AnsweringEngine(words("a", "b", "c")), served_model_names=(MODEL,))
    response = checked_response((await create(app, max_output_tokens=2)).body)
    assert response["status"] == "incomplete"
    assert response["output"][0]["content"][0]["text"] == "ab"


async def test_a_failure_midway_is_an_event(start_app, engine):
    app = await start_app(engine, served_model_names=(MODEL,))
    body = msgspec.json.encode({"model": MODEL, "input": "hi", "stream": True})
    exchange = Exchange("POST", URL, chunks=[body])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        name = engine.added[0].request_id
        await engine.say(out(name, "Hi", num_prompt_tokens=3, num_output_tokens=1))
        await engine.say(out(name, error="It broke."))
        await exchange.done()
    events = events_of(exchange.body)
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["message"] == "It broke."
    gone = await ask(app, "GET", f"{URL}/{events[0]['response']['id']}")
    assert gone.status == 404


async def test_a_failure_at_once_is_an_error_response(start_app, engine):
    app = await start_app(engine, served_model_names=(MODEL,))
    body = msgspec.json.encode({"model": MODEL, "input": "hi", "stream": True})
    exchange = Exchange("POST", URL, chunks=[body])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        await engine.say(out(engine.added[0].request_id, error="It broke."))
        await exchange.done()
    assert exchange.status == 500
    assert exchange.json["error"]["type"] == "server_error"


async def test_a_disconnect_ends_the_generation(start_app, engine):
    app = await start_app(engine, served_model_names=(MODEL,))
    for number, stream in enumerate((False, True), start=1):
        body = msgspec.json.encode({"model": MODEL, "input": "hi", "stream": stream})
        exchange = Exchange("POST", URL, chunks=[body])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            await engine.admit(number)
            exchange.disconnect()
            await exchange.done()
        engine.step_with()
        await engine.until(lambda e, n=number: len(e.aborted) == n)
    assert not app.bridge._routes
