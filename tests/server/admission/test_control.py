"""Requests are admitted or refused from their heads; the answer is the application's own."""

import contextlib
import json
import logging
import re
import socket

import anyio
import anyio.lowlevel
import pytest
from uvicorn.server import ServerState

from server.admission.control import SCOPE_KEY
from server.admission.pools import BEGINS
from server.app.draining import server_config
from server.bridge.bridge import BridgeState
from server.generation.admit import ticketed_paths
from server.http.paths import path_of_url
from server.net.endpoint import open_endpoint
from server.net.refusal import EarlyRefusal, Head
from server.settings.settings import Settings
from server.settings.types import Rates
from tests.support.asgi import Exchange
from tests.support.asgi import ask as ask_app

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
CHAT_URL = CHAT.encode()
CLIENT = ("127.0.0.1", 5)
TICKETED = [CHAT, "/v1/completions", "/generate", "/tokenize", "/detokenize"]
KEY = (b"authorization", b"Bearer abc")


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


HOST = [(b"host", b"localhost:80")]


def ask(app, *headers, method="POST", url=CHAT_URL, client=CLIENT, host=HOST):
    """What the protocol gets: an answer, or the state of a scope."""
    head = Head(method, path_of_url(url), [*host, *headers], client)
    return app.litestar.state.admit(head)


def decision(app, *headers, **head):
    """The decision about a request that is not answered from its head."""
    return ask(app, *headers, **head)[SCOPE_KEY]


@contextlib.contextmanager
def ticket_of(app, *headers, **head):
    with decision(app, *headers, **head).ticket as ticket:
        yield ticket


def parsed(answer):
    head, body = answer.split(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert int(headers["content-length"]) == len(body)
    return int(first.split()[1]), headers, json.loads(body)


@pytest.mark.parametrize("path", [*TICKETED, "/chat/completions", "/messages", "/responses"])
@pytest.mark.parametrize("rates", [None, Rates(requests=9)])
async def test_says_what_the_application_says(start, path, rates):
    app = await start(rate_limit=rates) if rates else await start()
    headers = {"content-type": "application/json", "x-request-id": "mine"}
    upload = Exchange("POST", path, chunks=[], headers=headers)
    await upload.run(app)
    answer = ask(app, (b"x-request-id", b"mine"), url=path.encode())
    status, headers, body = parsed(answer.response(is_last=False))
    assert status == upload.status == 429
    assert body == upload.json
    own = {"x-request-id", "openai-processing-ms"}
    for name in upload.headers.keys() - own:
        assert headers[name] == upload.headers[name] or name.startswith("x-ratelimit-re")
    assert headers.keys() - upload.headers.keys() == {"date"}


async def test_a_rate_is_refused_from_the_head_too(start_app):
    app = await start_app(rate_limit=Rates(requests=1))
    with ticket_of(app):
        pass
    _, headers, body = parsed(ask(app).response(is_last=False))
    assert body["error"]["message"].startswith("Rate limit reached")
    assert int(headers["retry-after"]) > 1
    assert headers["x-ratelimit-limit-requests"] == "1"


async def test_the_head_decides(start):
    app = await start()
    refused = [
        ask(app),
        ask(app, url=CHAT_URL + b"?beta=true"),
        ask(app, KEY, KEY),
        *(
            ask(app, url=url)
            for url in (
                b"//v1/chat/completions",
                b"/v1//chat/completions/",
                b"/v1/ch%61t/completions",
            )
        ),
    ]
    assert all(isinstance(found, EarlyRefusal) for found in refused)
    for head in (
        {"method": "GET"},
        {"url": b"/health"},
        {"url": b"/v1/chat/completion"},
        {"url": b"http://["},
    ):
        assert (decision(app, **head).ticket, decision(app, **head).error) == (None, None)
    assert decision(app, host=[(b"host", b"rebound.example")]).forbidden.status == 403
    assert decision(app, host=[]).forbidden.status == 400
    assert decision(app, host=HOST * 2).forbidden.status == 400
    assert decision(app, (b"origin", b"http://evil.example")).forbidden.status == 403
    assert decision(app, (b"x-request-timeout", b"never")).error.status == 400
    with ticket_of(app, client=("127.0.0.2", 5)) as ticket:
        assert ticket.tenant.name == "127.0.0.2", "another tenant has its share"


async def test_a_page_of_an_origin_reads_its_refusal(start):
    """The application adds the headers of CORS."""
    app = await start(allowed_origins=("http://page.example",))
    origin = {"origin": "http://page.example", "content-type": "application/json"}
    assert decision(app, (b"origin", b"http://page.example")).error.status == 429
    refused = await ask_app(app, "POST", CHAT, {}, origin)
    assert refused.status == 429
    assert refused.headers["access-control-allow-origin"] == "http://page.example"


async def test_every_path_of_a_ticket_is_known_in_its_short_form_too(start, caplog):
    caplog.set_level(logging.INFO, logger="roseinfer.access")
    app = await start()
    paths = ticketed_paths(app.litestar)
    below = {path.removeprefix("/v1"): path for path in paths if path.startswith("/v1/")}
    assert len(below) > 5
    for form, path in below.items():
        caplog.clear()
        ask(app, url=form.encode()).response(is_last=False)
        found = form if form in paths else path
        assert caplog.messages[0].startswith(f"POST {found} 429 "), "as the application's line"
    assert decision(app, url=b"/v1/generate").error is None


async def test_the_first_head_without_room_is_refused(start_app):
    """The tickets of those before it are taken from their heads, before any has begun."""
    app = await start_app()
    with contextlib.ExitStack() as stack:
        for _ in range(choices(app).limit):
            stack.enter_context(ticket_of(app))
        assert isinstance(ask(app), EarlyRefusal)
        assert decision(app, client=("127.0.0.2", 5)).ticket.__exit__(None, None, None) is None
    assert choices(app).held == 0
    with ticket_of(app):
        assert choices(app).held == 1


async def test_declared_bytes_are_taken_from_the_head(start_app):
    app = await start_app()
    bodies = app.litestar.state.serving.admission.body_bytes
    with ticket_of(app, (b"content-length", b"70")):
        assert bodies.held == 70
        bodies.take("127.0.0.1", bodies.limit - 70)
        _, _, body = parsed(ask(app, (b"content-length", b"1")).response(is_last=True))
        assert body["error"]["message"] == "Too many bytes of requests are waiting."
        assert choices(app).held == 1, "the refused one holds nothing"
    bodies.give_back("127.0.0.1", bodies.limit - 70)
    assert bodies.held == 0


async def test_only_holders_of_keys_learn_that_the_queue_is_full(start):
    app = await start(api_keys=("abc",))
    choices(app).give_back("127.0.0.1", choices(app).limit)
    choices(app).take("key#1", choices(app).limit)
    assert isinstance(ask(app, KEY), EarlyRefusal)
    assert isinstance(ask(app, (b"x-api-key", b"abc")), EarlyRefusal)
    for headers in ([], [(b"authorization", b"Bearer abd")], [(b"x-api-key", b"abd")]):
        found = decision(app, *headers)
        assert (found.ticket, found.error) == (None, None)
    assert (await ask_app(app, "POST", CHAT, {})).status == 401


async def test_behind_a_proxy_the_application_admits(start_app):
    """Only it knows the client."""
    app = await start_app(forwarded_allow_ips="*")
    assert ask(app) == {}
    choices(app).take("127.0.0.1", choices(app).limit)
    assert (await ask_app(app, "POST", CHAT, {})).status == 429


async def test_what_the_protocol_has_decided_is_not_decided_again(start_app):
    app = await start_app(rate_limit=Rates(requests=5))
    body = b'{"messages": [{"role": "user", "content": "x"}]}'
    exchange = Exchange("POST", CHAT, chunks=[body])
    exchange.scope["state"] = ask(app, (b"content-length", b"%d" % len(body)))
    assert choices(app).held == 1
    await exchange.run(app)
    assert (exchange.status, choices(app).held) == (200, 0)
    assert exchange.headers["x-ratelimit-remaining-requests"] == "4"


@pytest.mark.parametrize(("method", "path"), [("POST", "/nowhere"), ("GET", CHAT)])
async def test_a_ticket_is_given_back_whatever_route_is_found(start_app, method, path):
    app = await start_app()
    exchange = Exchange(method, path)
    exchange.scope["state"] = ask(app)
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
    answer = ask(app, (b"x-request-id", b"mine")).response(is_last=True)
    _, headers, _ = parsed(answer)
    assert (headers["x-request-id"], headers["connection"]) == ("mine", "close")
    assert admission.num_refused == before + 1
    [line] = caplog.messages
    pattern = rf"POST {CHAT} 429 [0-9.]+ ms 127\.0\.0\.1 mine refused rate_limit_exceeded"
    assert re.match(pattern, line)
    records = app.litestar.state.serving.records.latest("127.0.0.1", 9)
    assert [(one.status, one.error_code) for one in records] == [(429, "rate_limit_exceeded")]


async def test_requests_with_tickets_are_paced(start_app):
    app = await start_app()
    begun = []

    async def begin(tenant):
        begun.append(tenant)

    app.litestar.state.serving.admission.pacing.begin = begin
    spellings = [f"/{CHAT}", "/v1//chat/completions", "//chat/completions/"]
    for path in [*TICKETED, *spellings]:
        assert (await ask_app(app, "POST", path, {})).status in {200, 400}
    await ask_app(app, "GET", "/health")
    assert begun == ["127.0.0.1"] * (len(TICKETED) + len(spellings))


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
    """Over real connections: the application does not see the request."""
    app = await start()
    seen = []

    async def counting(scope, receive, send):
        seen.append(scope)
        await app(scope, receive, send)

    settings = Settings(port=0)
    config = server_config(counting, settings)
    config.load()
    endpoint = open_endpoint(settings)
    acceptor = endpoint.accept(config, ServerState(), {}, app.litestar.state.admit)
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    )
    try:
        with anyio.fail_after(10), contextlib.ExitStack() as stack:
            address = endpoint.listener.getsockname()
            clients = [stack.enter_context(socket.create_connection(address)) for _ in range(50)]
            for client in clients:
                client.send(request)
            for client in clients:
                await anyio.wait_readable(client)
                status, headers, _ = parsed(client.recv(65536))
                assert (status, headers["retry-after"]) == (429, "1")
        assert seen == []
    finally:
        acceptor.close()
        await acceptor.wait_closed()
