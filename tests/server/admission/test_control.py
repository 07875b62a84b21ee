"""Requests are admitted or refused from their heads."""

import contextlib
import logging
import re
import socket

import anyio
import anyio.lowlevel
import pytest
from uvicorn.server import ServerState

from server.bridge.bridge import BridgeState
from server.http.apis import table
from server.net.endpoint import open_endpoint
from server.net.refusal import BUSY_KEY
from server.process.draining import server_config
from server.settings.settings import Settings
from server.settings.types import Rates
from server.workers.pools import BEGINS
from tests.support.asgi import Exchange
from tests.support.asgi import ask as ask_app

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
TICKETED = [CHAT, "/v1/completions", "/generate", "/tokenize", "/detokenize"]
SPELLINGS = [f"/{CHAT}", "/v1//chat/completions", "//chat/completions/"]
KEY = {"authorization": "Bearer abc"}
JSON = {"content-type": "application/json"}


@pytest.fixture
async def start(start_app):
    """Start an application whose choices are all taken by 127.0.0.1."""

    async def start(**settings):
        app = await start_app(**settings)
        budget = choices(app)
        budget.take("127.0.0.1", budget.limit)
        return app

    return start


def choices(app):
    return app.litestar.state.serving.admission.choices


def decision(app, headers=None, *, method="POST", path=CHAT, client="127.0.0.1", hosts=1):
    """What is decided from a head."""
    scope = Exchange(method, path, headers=headers or {}).scope | {"client": (client, 5)}
    scope["headers"] = [(b"host", b"localhost")] * hosts + scope["headers"][1:]
    return app.litestar.state.decide(scope)


async def refused(app, path=CHAT, headers=JSON):
    """The answer to a head without a body."""
    upload = Exchange("POST", path, chunks=[], headers=headers)
    await upload.run(app)
    assert upload.has_ended
    return upload


@pytest.mark.parametrize(
    "path", [*TICKETED, *SPELLINGS, "/v1/ch%61t/completions", f"{CHAT}?beta=true", "/responses"]
)
async def test_the_head_is_refused_before_the_body_is_read(start, path):
    answer = await refused(await start(), path.replace("%61", "a"))
    assert answer.status == 429
    assert answer.headers["retry-after"] == "1"


async def test_a_rate_is_refused_from_the_head_too(start_app):
    app = await start_app(rate_limit=Rates(requests=1))
    with decision(app).ticket:
        pass
    answer = await refused(app)
    assert answer.json["error"]["message"].startswith("Rate limit reached")
    assert int(answer.headers["retry-after"]) > 1
    assert answer.headers["x-ratelimit-limit-requests"] == "1"


async def test_the_head_decides(start):
    app = await start()
    assert decision(app).error.status == 429
    assert decision(app, {"authorization": "Bearer abc"}).error.status == 429
    for head in ({"method": "GET"}, {"path": "/health"}, {"path": "/v1/chat/completion"}):
        assert (decision(app, **head).ticket, decision(app, **head).error) == (None, None)
    for num_hosts in (0, 2):
        assert decision(app, hosts=num_hosts).forbidden.status == 400
    assert decision(app, {"origin": "http://evil.example"}).forbidden.status == 403
    assert decision(app, {"x-request-timeout": "never"}).error.status == 400
    with decision(app, client="127.0.0.2").ticket as ticket:
        assert ticket.tenant.name == "127.0.0.2", "another tenant has its share"


async def test_a_page_of_an_origin_reads_its_refusal(start):
    """The application adds the headers of CORS."""
    app = await start(allowed_origins=("http://page.example",))
    answer = await refused(app, headers=JSON | {"origin": "http://page.example"})
    assert answer.status == 429
    assert answer.headers["access-control-allow-origin"] == "http://page.example"


async def test_every_path_of_a_ticket_is_known_in_its_short_form_too(start, caplog):
    caplog.set_level(logging.INFO, logger="roseinfer.access")
    app = await start()
    paths = {path for path, known in table().items() if known.has_ticket}
    below = {path.removeprefix("/v1"): path for path in paths if path.startswith("/v1/")}
    assert len(below) > 5
    for form, path in below.items():
        caplog.clear()
        await refused(app, form)
        found = form if form in paths else path
        assert caplog.messages[0].startswith(f"POST {found} 429 ")
    assert decision(app, path="/v1/generate").error is None


async def test_the_first_head_without_room_is_refused(start_app):
    """The tickets of those before it are taken from their heads, before any has begun."""
    app = await start_app()
    with contextlib.ExitStack() as stack:
        for _ in range(choices(app).limit):
            stack.enter_context(decision(app).ticket)
        assert decision(app).error.status == 429
        assert decision(app, client="127.0.0.2").ticket.__exit__(None, None, None) is None
    assert choices(app).held == 0
    with decision(app).ticket:
        assert choices(app).held == 1


async def test_declared_bytes_are_taken_from_the_head(start_app):
    app = await start_app()
    bodies = app.litestar.state.serving.admission.body_bytes
    with decision(app, {"content-length": "70"}).ticket:
        assert bodies.held == 70
        bodies.take("127.0.0.1", bodies.limit - 70)
        error = decision(app, {"content-length": "1"}).error
        assert str(error) == "Too many bytes of requests are waiting."
        assert choices(app).held == 1, "the refused one holds nothing"
    bodies.give_back("127.0.0.1", bodies.limit - 70)
    assert bodies.held == 0


async def test_only_holders_of_keys_learn_that_the_queue_is_full(start):
    app = await start(api_keys=("abc",))
    choices(app).give_back("127.0.0.1", choices(app).limit)
    choices(app).take("key#1", choices(app).limit)
    for headers in (KEY, {"x-api-key": "abc"}):
        assert decision(app, headers).error.status == 429
    for headers in ({}, {"authorization": "Bearer abd"}, {"x-api-key": "abd"}):
        found = decision(app, headers)
        assert (found.ticket, found.error) == (None, None)
    assert (await ask_app(app, "POST", CHAT, {})).status == 401


async def test_a_request_is_decided_about_once(start_app):
    app = await start_app(rate_limit=Rates(requests=5))
    exchange = await ask_app(app, "POST", CHAT, {"messages": [{"role": "user", "content": "x"}]})
    assert (exchange.status, choices(app).held) == (200, 0)
    assert exchange.headers["x-ratelimit-remaining-requests"] == "4"


@pytest.mark.parametrize(("method", "path"), [("POST", "/nowhere"), ("GET", CHAT)])
async def test_no_other_route_takes_a_ticket(start_app, method, path):
    app = await start_app()
    exchange = Exchange(method, path)
    await exchange.run(app)
    assert exchange.status in {404, 405}
    assert choices(app).held == 0


async def test_a_server_that_drains_says_so_itself(start):
    app = await start()
    app.bridge.state = BridgeState.DRAINING
    assert decision(app).error.status == 503
    app.bridge.state = BridgeState.READY


async def test_refusals_are_counted_and_logged(start, caplog):
    caplog.set_level(logging.INFO, logger="roseinfer.access")
    app = await start()
    admission = app.litestar.state.serving.admission
    before = admission.num_refused
    answer = await refused(app, headers=JSON | {"x-request-id": "mine"})
    assert answer.headers["x-request-id"] == "mine"
    assert admission.num_refused == before + 1
    [line] = caplog.messages
    pattern = rf"POST {CHAT} 429 [0-9.]+ ms 127\.0\.0\.1 mine refused rate_limit_exceeded"
    assert re.match(pattern, line)
    records = app.litestar.state.serving.records.latest("127.0.0.1", 9)
    assert [(one.status, one.error_code) for one in records] == [(429, "rate_limit_exceeded")]


async def test_requests_above_the_limit_of_connections_are_refused_but_not_probes(
    start_app, caplog
):
    caplog.set_level(logging.INFO, logger="roseinfer.access")
    app = await start_app()
    for method, path, status in [
        ("POST", CHAT, 503),
        ("GET", "/v1/models", 503),
        *(("GET", probe, 200) for probe, known in table().items() if known.is_probe),
    ]:
        exchange = Exchange(method, path)
        exchange.scope["state"] = {BUSY_KEY: True}
        await exchange.run(app)
        assert exchange.status == status
        if status == 503:
            assert float(exchange.headers["retry-after"]) >= 1
            assert exchange.json["error"]["type"] == "service_unavailable_error"
    assert re.match(rf"POST {CHAT} 503 .* 127\.0\.0\.1 ", caplog.messages[0])


async def test_requests_with_tickets_are_paced(start_app):
    app = await start_app()
    begun = []

    async def begin(tenant):
        begun.append(tenant)

    app.litestar.state.serving.admission.pacing.begin = begin
    for path in [*TICKETED, *SPELLINGS]:
        assert (await ask_app(app, "POST", path, {})).status in {200, 400}
    await ask_app(app, "GET", "/health")
    assert begun == ["127.0.0.1"] * (len(TICKETED) + len(SPELLINGS))


async def test_one_that_leaves_before_it_begins_holds_nothing(start_app):
    app = await start_app()
    async with anyio.create_task_group() as tasks:
        for _ in range(3 * BEGINS):
            tasks.start_soon(Exchange("POST", CHAT, chunks=[]).run, app)
        await anyio.lowlevel.checkpoint()
        assert choices(app).held == 3 * BEGINS
        tasks.cancel_scope.cancel()
    assert choices(app).held == 0


async def test_a_burst_is_refused_from_its_heads(start):
    """Over real connections, of which each can go on."""
    app = await start()
    settings = Settings(port=0)
    config = server_config(app, settings)
    config.load()
    endpoint = open_endpoint(settings)
    acceptor = endpoint.accept(config, ServerState(), {})
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    )
    try:
        with anyio.fail_after(10), contextlib.ExitStack() as stack:
            address = endpoint.listener.getsockname()
            clients = [stack.enter_context(socket.create_connection(address)) for _ in range(50)]
            for _ in range(2):
                for client in clients:
                    client.send(request)
                for client in clients:
                    await anyio.wait_readable(client)
                    head = client.recv(65536).partition(b"\r\n\r\n")[0].split(b"\r\n")
                    assert head[0] == b"HTTP/1.1 429 Too Many Requests"
                    assert b"retry-after: 1" in head
                    assert b"connection: close" not in head
    finally:
        acceptor.close()
        await acceptor.wait_closed()
