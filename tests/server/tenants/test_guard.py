import re

import pytest

from server.app.edge import PROBES
from server.bridge.bridge import BridgeState
from tests.support.asgi import ask

pytestmark = pytest.mark.anyio

KEY = "sk-sécret"
CHAT = "/v1/chat/completions"
ORIGIN = "https://page.example"
PAGE = {"/", "/ui/x"}
"""The page's own files: a browser sends no key when it opens a page, and they hold no data."""


def bearer(token, scheme="Bearer"):
    # HTTP clients send the key's UTF-8 bytes; a server reads header bytes as latin-1.
    return {"authorization": f"{scheme} {token}", "content-type": "application/json"}


@pytest.mark.parametrize("headers", [bearer(KEY), bearer(KEY, "bearer"), bearer(f" {KEY}")])
async def test_a_valid_key_is_accepted(start_app, headers):
    app = await start_app(api_keys=("other", KEY))
    assert (await ask(app, "GET", "/v1/models", headers=headers)).status == 200


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, None),
        ({"authorization": ""}, None),
        ({"authorization": "Bearer"}, None),
        ({"authorization": "Bearer "}, None),
        (bearer("wrong"), "invalid_api_key"),
        (bearer(KEY[:-1]), "invalid_api_key"),
        (bearer(KEY + "x"), "invalid_api_key"),
        (bearer("\u0142\U0001f600"), "invalid_api_key"),
        (bearer(KEY, "Basic"), "invalid_api_key"),
        ({"authorization": KEY}, None),
    ],
)
async def test_a_missing_or_wrong_key_is_401(start_app, headers, code):
    app = await start_app(api_keys=(KEY,))
    for method, path in [("GET", "/v1/models"), ("GET", "/v1/models/x"), ("POST", CHAT)]:
        exchange = await ask(app, method, path, b"not even JSON", headers)
        assert exchange.status == 401
        error = exchange.json["error"]
        assert (error["type"], error["code"], error["param"]) == (
            "invalid_request_error",
            code,
            None,
        )
        assert exchange.headers["www-authenticate"] == "Bearer"
        assert exchange.headers["x-should-retry"] == "false"
        assert exchange.headers["x-request-id"]
        assert KEY not in error["message"]


async def test_every_route_but_the_public_ones_needs_a_key(start_app):
    app = await start_app(api_keys=(KEY,))
    seen = set()
    for route in app.litestar.routes:
        path = re.sub(r"\{\w+:path\}", "x", route.path)
        for method in sorted(route.methods - {"OPTIONS"}):
            status = (await ask(app, method, path)).status
            assert (status == 401) == (path not in PROBES | PAGE), (method, path, status)
            seen.add(path)
    assert seen >= PROBES | PAGE
    assert seen - PROBES - PAGE


async def test_a_server_without_keys_needs_none(start_app):
    assert (await ask(await start_app(), "GET", "/v1/models")).status == 200


async def test_a_preflight_needs_no_key(start_app):
    app = await start_app(api_keys=(KEY,), allowed_origins=(ORIGIN,))
    headers = {
        "origin": ORIGIN,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    exchange = await ask(app, "OPTIONS", CHAT, headers=headers)
    assert exchange.status in {200, 204}
    assert exchange.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in exchange.headers["access-control-allow-methods"]
    allowed = exchange.headers["access-control-allow-headers"]
    assert allowed == "*" or {"authorization", "content-type"} <= set(allowed.lower().split(", "))


async def test_options_needs_no_key(start_app):
    exchange = await ask(await start_app(api_keys=(KEY,)), "OPTIONS", CHAT)
    assert exchange.status == 204
    assert "POST" in exchange.headers["allow"]


@pytest.mark.parametrize("stream", [False, True])
async def test_responses_and_errors_carry_the_allowed_origin(start_app, stream):
    app = await start_app(api_keys=(KEY,), allowed_origins=(ORIGIN,))
    body = {"messages": [{"role": "user", "content": "x"}], "stream": stream}
    for headers, status in [(bearer(KEY), 200), ({}, 401)]:
        exchange = await ask(app, "POST", CHAT, body, headers | {"origin": ORIGIN})
        assert exchange.status == status
        assert exchange.headers["access-control-allow-origin"] == ORIGIN


async def test_a_request_without_a_key_takes_no_place(start_app):
    """It is a 401 also if the server is full, draining, or would refuse the size of the body."""
    app = await start_app(api_keys=(KEY,))
    taken = []
    admission = app.litestar.state.serving.admission
    admission.choices.take = lambda *args: taken.append(args)
    app.bridge.state = BridgeState.DRAINING
    for path in (CHAT, "/v1/completions", "/generate", "/tokenize", "/detokenize"):
        headers = {"content-type": "application/json", "content-length": "9" * 15}
        assert (await ask(app, "POST", path, b"{}", headers)).status == 401
    assert not taken
