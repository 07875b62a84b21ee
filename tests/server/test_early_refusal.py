"""Requests that are refused from their heads get what the application would answer."""

import json
import logging
import re
import socket

import anyio
import anyio.lowlevel
import pytest
from uvicorn.server import ServerState

from server.admission.rates import Rates
from server.admission.turns import PER_TURN
from server.bridge import State
from server.connections.opening import open_front
from server.controllers.ticketed import ticketed_paths
from server.draining import server_config
from server.early_refusal import EarlyRefusal
from server.engine_work import EngineWork
from server.settings import Settings
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
    """Start an application whose places are all taken by 127.0.0.1."""

    async def start(**settings):
        app = await start_app(**settings)
        budget = app.litestar.state.serving.admission.choices
        budget.take("127.0.0.1", budget.limit)
        return app, EarlyRefusal(app.litestar)

    return start


HOST = [(b"host", b"localhost:80")]


def ask(turn_away, *headers, method=b"POST", url=CHAT_URL, client=CLIENT, host=HOST):
    return turn_away(method, url, [*host, *headers], client)


def parsed(answer):
    head, body = answer.split(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert int(headers["content-length"]) == len(body)
    return int(first.split()[1]), headers, json.loads(body)


@pytest.mark.parametrize("path", [*TICKETED, "/chat/completions", "/messages", "/responses"])
async def test_says_what_the_application_says(start, path):
    app, turn_away = await start()
    headers = {"content-type": "application/json", "x-request-id": "mine"}
    upload = Exchange("POST", path, chunks=[], headers=headers)
    await upload.run(app)
    answer = ask(turn_away, (b"x-request-id", b"mine"), url=path.encode())
    status, headers, body = parsed(answer(is_last=False))
    assert status == upload.status == 429
    assert body == upload.json
    for name in upload.headers.keys() - {"x-request-id", "openai-processing-ms"}:
        assert headers[name] == upload.headers[name]
    assert headers.keys() - upload.headers.keys() == {"date"}


async def test_the_head_decides(start):
    _, turn_away = await start()
    assert ask(turn_away)
    assert ask(turn_away, url=CHAT_URL + b"?beta=true")
    assert ask(turn_away, method=b"GET") is None
    assert ask(turn_away, url=b"/health") is None
    for url in (b"//v1/chat/completions", b"/v1//chat/completions/", b"/v1/ch%61t/completions"):
        assert ask(turn_away, url=url)
    assert ask(turn_away, url=b"/v1/chat/completion") is None
    assert ask(turn_away, (b"origin", b"http://localhost")) is None
    assert ask(turn_away, host=[(b"host", b"rebound.example")]) is None
    assert ask(turn_away, host=[]) is None
    assert ask(turn_away, host=HOST * 2) is None
    assert ask(turn_away, (b"x-request-timeout", b"never")) is None
    assert ask(turn_away, KEY)
    assert ask(turn_away, KEY, KEY) is None
    assert ask(turn_away, client=("127.0.0.2", 5)) is None, "another tenant has its share"


async def test_every_path_of_a_ticket_is_known_in_its_short_form_too(start, caplog):
    caplog.set_level(logging.INFO, logger="roseinfer.access")
    app, turn_away = await start()
    paths = ticketed_paths(app.litestar)
    below = {path.removeprefix("/v1"): path for path in paths if path.startswith("/v1/")}
    assert len(below) > 5
    for form, path in below.items():
        caplog.clear()
        ask(turn_away, url=form.encode())(is_last=False)
        found = form if form in paths else path
        assert caplog.messages[0].startswith(f"POST {found} 429 "), "as the application's line"
    assert ask(turn_away, url=b"/v1/generate") is None


async def test_with_room_nobody_is_refused(start):
    app, turn_away = await start()
    app.litestar.state.serving.admission.choices.give_back("127.0.0.1", 1)
    assert ask(turn_away) is None


async def test_those_that_came_at_the_same_time_count(start):
    app, turn_away = await start()
    app.litestar.state.serving.admission.choices.give_back("127.0.0.1", 1)
    assert ask(turn_away) is None
    assert ask(turn_away)
    assert ask(turn_away, client=("127.0.0.2", 5)) is None
    await anyio.lowlevel.checkpoint()
    assert ask(turn_away) is None


async def test_those_that_wait_for_their_turn_count(start):
    app, turn_away = await start()
    serving = app.litestar.state.serving
    serving.admission.choices.give_back("127.0.0.1", 1)
    async with anyio.create_task_group() as tasks:
        for _ in range(PER_TURN + 1):
            tasks.start_soon(serving.turns.begin, "127.0.0.1")
        await anyio.lowlevel.checkpoint()
        assert serving.turns.num_waiting("127.0.0.1") == 1
        assert ask(turn_away)
    assert ask(turn_away) is None


async def test_only_holders_of_keys_learn_that_the_queue_is_full(start):
    app, turn_away = await start(api_keys=("abc",))
    budget = app.litestar.state.serving.admission.choices
    budget.give_back("127.0.0.1", budget.limit)
    budget.take("key#1", budget.limit)
    assert ask(turn_away, KEY)
    assert ask(turn_away, (b"authorization", b"Bearer abd"), KEY) is None
    assert ask(turn_away) is None
    assert ask(turn_away, (b"authorization", b"Bearer abd")) is None


@pytest.mark.parametrize(
    "settings", [{"forwarded_allow_ips": "*"}, {"rate_limit": Rates(requests=5)}]
)
async def test_what_a_head_does_not_tell_is_left_to_the_application(start, settings):
    _, turn_away = await start(**settings)
    assert ask(turn_away) is None


async def test_a_server_that_drains_says_so_itself(start):
    app, turn_away = await start()
    app.bridge.state = State.DRAINING
    assert ask(turn_away) is None
    app.bridge.state = State.READY


async def test_refusals_are_counted_and_logged(start, caplog):
    caplog.set_level(logging.INFO, logger="roseinfer.access")
    app, turn_away = await start()
    admission = app.litestar.state.serving.admission
    before = admission.num_refused
    answer = ask(turn_away, (b"x-request-id", b"mine"))(is_last=True)
    _, headers, _ = parsed(answer)
    assert (headers["x-request-id"], headers["connection"]) == ("mine", "close")
    assert admission.num_refused == before + 1
    [line] = caplog.messages
    pattern = rf"POST {CHAT} 429 [0-9.]+ ms 127\.0\.0\.1 mine refused rate_limit_exceeded"
    assert re.match(pattern, line)
    records = app.litestar.state.serving.records.latest("127.0.0.1", 9)
    assert [(one.status, one.error_code) for one in records] == [(429, "rate_limit_exceeded")]


def test_settings_have_no_proxy_by_default():
    """Behind a proxy, addresses are known only to the application."""
    assert Settings().forwarded_allow_ips is None


async def test_requests_that_take_tickets_wait_for_their_turn(start_app):
    app = await start_app()
    begun = []

    async def begin(tenant):
        begun.append(tenant)

    app.litestar.state.serving.turns.begin = begin
    spellings = [f"/{CHAT}", "/v1//chat/completions", "//chat/completions/"]
    for path in [*TICKETED, *spellings]:
        assert (await ask_app(app, "POST", path, {})).status in {200, 400}
    await ask_app(app, "GET", "/health")
    assert begun == ["127.0.0.1"] * (len(TICKETED) + len(spellings))


async def test_while_all_places_are_taken_a_connection_is_refused_before_it_is_opened(start):
    """Its answer ends it. One on an open connection would not."""
    app, _ = await start()
    settings = Settings(port=0)
    work, config = EngineWork(app.litestar), server_config(app, settings)
    config.load()
    front = open_front(settings)
    acceptor = front.accept(config, ServerState(), {}, work.turn_away(), work.is_full)
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    )
    try:
        with anyio.fail_after(10):
            with socket.create_connection(front.listener.getsockname()) as client:
                client.send(request)  # before the loop accepts the connection
                await anyio.wait_readable(client)
                status, headers, _ = parsed(client.recv(65536))
        assert (status, headers["connection"]) == (429, "close")
        assert front.gate.num_open == 0
        budget = app.litestar.state.serving.admission.choices
        budget.give_back("127.0.0.1", 1)
        assert not work.is_full()
    finally:
        acceptor.close()
        await acceptor.wait_closed()
