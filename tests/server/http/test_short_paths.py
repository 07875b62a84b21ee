"""Routes below /v1 answer without that prefix."""

import pytest
from litestar import Litestar, get

from server.http.paths import short_names, with_paths
from tests.support.asgi import ask

pytestmark = pytest.mark.anyio

USER = [{"role": "user", "content": "hi"}]


async def test_generating_routes_answer_without_the_prefix(start_app):
    app = await start_app(served_model_names=("org/m",))
    chat = await ask(app, "POST", "/chat/completions", {"messages": USER})
    assert chat.json["choices"][0]["message"]["content"] == "Hi there!"
    completion = await ask(app, "POST", "/completions", {"prompt": "x"})
    assert completion.json["object"] == "text_completion"
    assert (await ask(app, "GET", "/models")).json["data"][0]["id"] == "org/m"
    assert (await ask(app, "GET", "/models/org/m")).json["id"] == "org/m"


async def test_other_routes_stay(start_app):
    app = await start_app()
    assert (await ask(app, "POST", "/generate", {"prompt": "x"})).json["text"] == "xHi there!"
    assert (await ask(app, "GET", "/health")).json["status"] == "ok"
    for path in ("/v1", "/chat", "/chat/nowhere", "/v1/v1/models", "/nowhere"):
        refused = await ask(app, "GET", path)
        assert (refused.status, refused.json["error"]["code"]) == (404, "unknown_url")


async def test_a_short_path_needs_a_key_too(start_app):
    app = await start_app(api_keys=("k",))
    assert (await ask(app, "POST", "/chat/completions", {"messages": USER})).status == 401
    assert (await ask(app, "GET", "/models")).status == 401


async def test_a_route_without_the_prefix_keeps_its_path():
    def handler(path):
        async def handle() -> dict[str, str]:
            return {"path": path}

        return get(path)(handle)

    handlers = [handler(path) for path in ("/a", "/v1/a", "/v1/b")]
    app = Litestar(handlers, openapi_config=None, logging_config=None)
    wrapped = with_paths(app, short_names(route.path for route in app.routes))
    for path, found in (("/a", "/a"), ("/v1/a", "/v1/a"), ("/b", "/v1/b")):
        assert (await ask(wrapped, "GET", path)).json == {"path": found}
