import logging

import pytest

from server.observe.access_log import with_trace
from tests.support.asgi import Exchange, ask

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/health", b"", 200),
        ("POST", CHAT, {"messages": USER}, 200),
        ("POST", CHAT, {"messages": USER, "stream": True}, 200),
        ("POST", CHAT, b"{", 400),
        ("GET", "/nowhere", b"", 404),
        ("GET", CHAT, b"", 405),
    ],
)
async def test_every_response_has_its_own_id(start_app, method, path, body, status):
    app = await start_app()
    ids = set()
    for _ in range(3):
        exchange = await ask(app, method, path, body)
        assert exchange.status == status
        names = [name for name, _ in exchange.messages[0]["headers"]]
        assert names.count(b"x-request-id") == 1
        assert int(exchange.headers["openai-processing-ms"]) >= 0
        ids.add(exchange.headers["x-request-id"])
    assert len(ids) == 3


@pytest.mark.parametrize("own", ["a", "req_12-3.4", "x" * 128])
async def test_a_safe_client_id_is_kept(start_app, own):
    exchange = await ask(await start_app(), "GET", "/health", headers={"X-Request-Id": own})
    assert exchange.headers["x-request-id"] == own


@pytest.mark.parametrize("own", ["", "x" * 129, "a b", "a\r\nset-cookie: x", "é", "a;b", "a\n"])
async def test_an_unsafe_client_id_is_replaced(start_app, own):
    exchange = await ask(await start_app(), "GET", "/health", headers={"x-request-id": own})
    assert len(exchange.headers["x-request-id"]) == 32


async def test_each_request_is_one_log_line(start_app, caplog):
    app = await start_app()
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="roseinfer.access"):
        exchange = await ask(app, "GET", "/x\nGET /fake 200")
    [record] = [record for record in caplog.records if record.name == "roseinfer.access"]
    line = record.getMessage()
    assert "\n" not in line
    assert line.startswith("GET /x%0AGET%20/fake%20200 404 ")
    assert line.endswith(f" ms 127.0.0.1 {exchange.headers['x-request-id']}")


async def test_a_disconnect_before_the_response_is_logged_as_499(start_app, engine, caplog):
    app = await start_app(engine)
    exchange = Exchange("POST", "/generate", chunks=[b'{"prompt": "x"}'])
    exchange.disconnect()
    with caplog.at_level(logging.INFO, logger="roseinfer.access"):
        await exchange.run(app)
    assert exchange.messages == []
    assert "POST /generate 499 " in caplog.records[-1].getMessage()


async def test_other_protocols_pass_through():
    seen = []

    async def app(scope, receive, send):
        seen.append((scope, receive, send))

    scope = {"type": "lifespan"}
    await with_trace(app, None)(scope, None, None)
    assert seen == [(scope, None, None)]
