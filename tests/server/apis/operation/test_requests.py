"""GET /requests: what happened to requests of every kind, and where their time went."""

import json
import logging
import threading

import anyio
import pytest

from core.contract.messages import PrefixMiss, Work
from server.apis.openai import routes as chat
from server.bridge.bridge import BridgeState
from server.http.errors import CUT_KEY
from server.net.refusal import late_body
from tests.support.asgi import Exchange, ask
from tests.support.clock import Clock
from tests.support.engines import AnsweringEngine, last, out, settle, until, words
from tests.support.records import attributed

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]
SECONDS = 7.0


@pytest.fixture
def clock():
    return Clock(1000.0)


def post(path=CHAT, *, name="mine", timeout=None, **fields):
    body = {"messages": USER} | fields
    headers = {"content-type": "application/json", "x-request-id": name}
    if timeout is not None:
        headers["x-request-timeout"] = str(timeout)
    return Exchange("POST", path, chunks=[json.dumps(body).encode()], headers=headers)


async def record_of(app, name="mine", **headers):
    return (await ask(app, "GET", f"/requests/{name}", headers=headers)).json


async def records_of(app, query="", **headers):
    listed = (await ask(app, "GET", f"/requests{query}", headers=headers)).json
    assert listed["object"] == "list"
    return listed["data"]


class Held:
    """A request that stays in one phase until its client leaves."""

    def __init__(self, app, engine, exchange, clock):
        self.app, self.engine, self.exchange, self.clock = app, engine, exchange, clock
        self.gate = threading.Event()
        self.gate.set()
        self.has_begun = False

    def translating(self, translate):
        """``translate``, which waits for the gate."""

        def gated(request, model):
            self.has_begun = True
            assert self.gate.wait(10)
            return translate(request, model)

        return gated

    def prepare(self, phase):
        """Before the request comes."""
        if phase == "upload":
            self.exchange.hold_end()
        elif phase == "waiting":
            self.app.litestar.state.serving.pools.small.num_running += 100
        elif phase == "worker":
            self.gate.clear()
        elif phase == "delivery":
            self.exchange.block()

    async def reach(self, phase):
        """Wait until it is in the phase."""
        now = self.clock()
        if phase == "upload":
            await settle()
        elif phase == "waiting":
            await until(lambda: self.app.litestar.state.serving.pools.small.num_waiting)
        elif phase == "worker":
            await until(lambda: self.has_begun)
        else:
            await self.engine.admit(1)
            name = self.engine.added[0].request_id
            if phase == "prefill":
                self.engine.works[name] = Work(started_at=now, until=now + 100)
            elif phase == "decode":
                self.engine.works[name] = Work(
                    started_at=now, first_token_at=now, until=now + 100, num_output_tokens=2
                )
                await self.engine.say(out(name, "Hi", num_output_tokens=2))
            elif phase == "delivery":
                work = Work(started_at=now, first_token_at=now, until=now, num_output_tokens=2)
                await self.engine.say(last(name, "Hi", num_output_tokens=2, work=work))
                await self.exchange.until(lambda e: e.is_blocked)


PHASES = ("upload", "waiting", "worker", "queue", "prefill", "decode", "delivery")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_client_that_leaves_in_a_phase_has_its_time_there(
    start_app, engine, clock, monkeypatch, phase, stream
):
    app, exchange = await start_app(engine, clock=clock), post(stream=stream)
    held = Held(app, engine, exchange, clock)
    monkeypatch.setattr(chat, "translate_chat", held.translating(chat.translate_chat))
    held.prepare(phase)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await held.reach(phase)
        clock.now += SECONDS
        running = await record_of(app)
        exchange.disconnect()
        await exchange.done()
    held.gate.set()
    assert (running["state"], running["ended_by"]) == ("running", None)
    record = await record_of(app)
    assert (record["state"], record["status"], record["ended_by"]) == ("ended", 499, "client")
    assert record["error_code"] == "client_left"
    assert record["times_ms"][phase] == record["duration_ms"] == 1000 * SECONDS
    assert attributed(record["times_ms"]) >= 0.95 * record["duration_ms"]
    assert running["times_ms"] == record["times_ms"]
    assert record["completion_tokens"] == (2 if phase in {"decode", "delivery"} else 0)


async def test_a_new_grammar_waits_for_its_own_worker(start_app, clock):
    app = await start_app(clock=clock)
    exchange = post(response_format={"type": "json_object"})
    lane = app.litestar.state.serving.pools.grammars
    lane.num_running += 100
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await until(lambda: lane.num_waiting)
        clock.now += SECONDS
        exchange.disconnect()
        await exchange.done()
    record = await record_of(app)
    assert record["times_ms"]["waiting"] == record["duration_ms"] == 1000 * SECONDS


def work_at(start, **counts):
    """A second in the queue, two of prefill, four of decode."""
    return Work(started_at=start + 1, first_token_at=start + 3, until=start + 7, **counts)


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"n": 4}, {"n": 4, "stream": True}])
async def test_an_answer_has_all_its_time(start_app, engine, clock, fields):
    app = await start_app(engine, clock=clock)
    exchange = post(**fields, temperature=0.5, max_tokens=9)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        num_choices = fields.get("n", 1)
        await engine.admit(num_choices)
        start = clock()
        clock.now += 8
        work = work_at(start, num_steps=3, num_rows=6, max_rows=2, miss=PrefixMiss("last_block", 4))
        await engine.say(
            *(
                last(request.request_id, "Hi", num_output_tokens=2, work=work)
                for request in engine.added
            )
        )
        await exchange.done()
    record = await record_of(app)
    assert (record["status"], record["ended_by"], record["error"]) == (200, "model", None)
    assert record["times_ms"] | {"other": 0} == {
        **dict.fromkeys(("upload", "waiting", "worker", "other"), 0),
        "queue": 1000,
        "prefill": 2000,
        "decode": 4000,
        "delivery": 1000,
    }
    assert record["finish_reasons"] == ["stop"] * num_choices
    assert record["completion_tokens"] == 2 * num_choices
    assert (record["num_steps"], record["mean_batch"], record["max_batch"]) == (3, 2, 2)
    assert record["cache_miss"] == {"reason": "last_block", "first_differing_block": 4}
    assert record["prompt_tokens"] > 0
    assert record["stream"] is bool(fields.get("stream"))
    parameters = record["parameters"]
    assert (parameters["n"], parameters["temperature"]) == (num_choices, 0.5)
    assert (parameters["max_tokens"], parameters["top_p"]) == (9, 1.0)
    body = exchange.json if "stream" not in fields else None
    if body is not None:
        assert (await record_of(app, body["id"]))["request_id"] == "mine"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_that_fails(start_app, engine, clock, stream):
    app, exchange = await start_app(engine, clock=clock), post(stream=stream)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        name = engine.added[0].request_id
        if stream:
            await engine.say(out(name, "Hi", num_output_tokens=1))
        start = clock()
        clock.now += 8
        await engine.say(out(name, error="It broke.", work=work_at(start, num_output_tokens=1)))
        await exchange.done()
    record = await record_of(app)
    assert exchange.status == (200 if stream else 500)
    assert (record["status"], record["ended_by"]) == (500, "error")
    assert record["error"] == ("It broke. (after 1 tokens)" if stream else "It broke.")
    assert attributed(record["times_ms"]) == record["duration_ms"] == 8000


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"messages": 5}, 400, "invalid_type"),
        ({"model": "other"}, 404, "model_not_found"),
        ({"max_tokens": 10**6}, 400, "context_length_exceeded"),
    ],
)
async def test_a_refusal(start_app, clock, fields, status, code):
    app, exchange = await start_app(clock=clock), post(**fields)
    exchange.block()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await exchange.until(lambda e: e.is_blocked)
        clock.now += SECONDS
        exchange.unblock()
        await exchange.done()
    record = await record_of(app)
    assert (record["status"], record["ended_by"], record["error_code"]) == (status, "error", code)
    assert record["times_ms"]["delivery"] == record["duration_ms"] == 1000 * SECONDS
    assert record["error"]
    assert record["num_steps"] == 0


async def test_a_refusal_by_the_connection(start_app):
    app = await start_app()
    headers = {"content-type": "application/json", "x-request-id": "mine"}
    exchange = Exchange("POST", CHAT, chunks=[b"{"], headers=headers, is_complete=False)
    exchange.scope["state"] = {CUT_KEY: late_body()}
    exchange.disconnect()
    await exchange.run(app)
    record = await record_of(app)
    assert (record["status"], record["ended_by"]) == (408, "deadline")
    assert record["error"] == str(late_body())


async def test_a_refusal_of_a_full_server(start_app, engine):
    app = await start_app(engine)
    budget = app.litestar.state.serving.admission.choices
    budget.take("127.0.0.1", budget.limit)
    exchange = post()
    await exchange.run(app)
    record = await record_of(app)
    assert (record["status"], record["error_code"]) == (429, "rate_limit_exceeded")


async def test_a_deadline_ends_a_stream(start_app, engine, caplog):
    app, exchange = await start_app(engine), post(stream=True, timeout=0.05)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        await engine.say(out(engine.added[0].request_id, "Hi", num_output_tokens=1))
        with caplog.at_level(logging.INFO, logger="roseinfer.access"):
            await exchange.done()
    record = await record_of(app)
    assert exchange.status == 200
    assert (record["status"], record["ended_by"]) == (504, "deadline")
    (line,) = (line for line in caplog.messages if line.startswith("POST"))
    assert " 504 " in line
    assert " time over after 1 tokens request_timeout id=chatcmpl-" in line


async def test_a_server_that_ends_says_so(start_app, engine):
    app, exchange = await start_app(engine), post(stream=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        await engine.say(out(engine.added[0].request_id, "Hi", num_output_tokens=1))
        app.bridge.state = BridgeState.DRAINING
        app.bridge.fail_all("The server is shutting down.")
        await exchange.done()
    record = await record_of(app)
    assert (record["status"], record["ended_by"]) == (503, "server")


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_the_server_cuts(start_app, engine, stream):
    app, exchange = await start_app(engine), post(stream=stream)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        if stream:
            await engine.say(out(engine.added[0].request_id, "Hi", num_output_tokens=1))
        app.bridge.cancel_all()
        await exchange.done()
    record = await record_of(app)
    assert (record["status"], record["ended_by"]) == (503, "server")


async def test_a_client_that_leaves_has_its_line(start_app, engine, caplog):
    app, exchange = await start_app(engine), post(stream=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        name = engine.added[0].request_id
        engine.works[name] = work_at(1.0, num_output_tokens=12)
        await engine.say(out(name, "Hi", num_output_tokens=12))
        with caplog.at_level(logging.INFO, logger="roseinfer.access"):
            exchange.disconnect()
            await exchange.done()
    assert exchange.status == 200
    [line] = caplog.messages
    assert line.startswith(f"POST {CHAT} 499 ")
    assert f" ms 127.0.0.1 mine client left after 12 tokens id={name[:-2]} stream " in line


BODIES = {
    "/v1/completions": {"prompt": "x"},
    "/v1/responses": {"input": "x"},
    "/v1/messages": {"messages": USER, "max_tokens": 5},
    "/api/chat": {"messages": USER},
    "/api/generate": {"prompt": "x"},
    "/generate": {"prompt": "x"},
    "/tokenize": {"prompt": "x"},
    "/detokenize": {"tokens": [1]},
    "/v1/messages/count_tokens": {"messages": USER},
}


@pytest.mark.parametrize("path", BODIES)
async def test_every_door_has_records(start_app, path):
    app = await start_app(accept_any_model_name=True)
    body = {"model": "m"} | BODIES[path] if path != "/generate" else BODIES[path]
    if "tokenize" in path:
        body = BODIES[path]
    headers = {"content-type": "application/json", "x-request-id": "mine"}
    reply = await ask(app, "POST", path, body, headers=headers)
    assert reply.status == 200
    record = await record_of(app)
    assert (record["route"], record["status"]) == (path, 200)
    answered = json.loads(reply.body.partition(b"\n")[0])
    if "id" in answered:
        assert await record_of(app, answered["id"]) == record
    generates = "token" not in path
    assert record["ended_by"] == ("model" if generates else None)
    assert (record["completion_tokens"], record["prompt_tokens"] > 0) == (
        (2, True) if generates else (0, False)
    )
    assert attributed(record["times_ms"]) >= 0.95 * record["duration_ms"]


@pytest.mark.parametrize(
    "path", [f"{CHAT}/", "//v1//chat/completions", "/chat/completions" + "/" * 500]
)
async def test_a_path_that_is_written_otherwise_is_no_route_of_its_own(start_app, path):
    app = await start_app()
    await post(path).run(app)
    assert (await record_of(app))["route"] == CHAT
    assert list(app.litestar.state.serving.records.totals.ended) == [(CHAT, "200", "model")]


async def test_what_is_no_door_has_none(start_app):
    app = await start_app()
    for path in ("/health", "/stats", "/v1/models", "/nowhere"):
        await ask(app, "GET", path)
    assert await records_of(app) == []


async def test_the_list_is_limited(start_app):
    app = await start_app()
    for number in range(4):
        await post(name=f"r{number}").run(app)
    assert [record["request_id"] for record in await records_of(app)] == ["r3", "r2", "r1", "r0"]
    assert [record["request_id"] for record in await records_of(app, "?limit=1")] == ["r3"]
    for wrong in ("0", "1001", "x"):
        assert (await ask(app, "GET", f"/requests?limit={wrong}")).status == 400


async def test_as_many_are_kept_as_the_operator_wants(start_app):
    app = await start_app(request_log=2)
    for number in range(4):
        await post(name=f"r{number}").run(app)
    assert [record["request_id"] for record in await records_of(app)] == ["r3", "r2"]
    gone = await ask(app, "GET", "/requests/r0")
    assert gone.status == 404
    assert gone.json["error"]["code"] == "request_not_found"


async def test_a_key_sees_its_own_only(start_app):
    app = await start_app(api_keys=("one", "two"))
    exchange = post()
    exchange.scope["headers"].append((b"authorization", b"Bearer one"))
    await exchange.run(app)
    one, two = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
    assert (await record_of(app, **one))["key"] == "key#1"
    assert (await ask(app, "GET", "/requests/mine", headers=two)).status == 404
    assert await records_of(app, **two) == []
    assert (await ask(app, "GET", "/requests")).status == 401
    assert (await ask(app, "GET", "/requests/mine")).status == 401


async def test_who_has_no_key_leaves_no_record(start_app):
    app = await start_app(api_keys=("one",))
    await post().run(app)
    assert not app.litestar.state.serving.records.latest("127.0.0.1", 9)


@pytest.mark.parametrize("stream", [True, False])
async def test_texts_are_kept_if_the_operator_wants(start_app, stream):
    app = await start_app(log_prompts=True)
    await post(stream=stream, stop=["END"]).run(app)
    record = await record_of(app)
    assert "hi" in record["prompt"]
    assert record["text"] == "Hi there!"
    assert record["parameters"]["stop"] == 1
    assert [(one["prompt"], one["text"]) for one in await records_of(app)] == [(None, None)]


async def test_no_text_is_kept_or_logged_otherwise(start_app, caplog):
    engine = AnsweringEngine(words("secret", " answer"))
    app = await start_app(engine)
    with caplog.at_level(logging.DEBUG):
        await post(messages=[{"role": "user", "content": "secret prompt"}], stop=["secret"]).run(
            app
        )
    record = await record_of(app)
    assert (record["prompt"], record["text"]) == (None, None)
    assert record["parameters"]["stop"] == 1
    assert "secret" not in json.dumps(record)
    assert "secret" not in caplog.text
