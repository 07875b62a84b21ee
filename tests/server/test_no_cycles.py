"""A refused request is freed when it ends: a storm of them leaves nothing to the collector."""

import contextlib
import gc
import weakref

import pytest

from server.connections.answering import extensions_of
from server.errors import APIError
from server.request_id import with_request_id
from server.tenants.keys import Keys
from server.tenants.middleware import with_tenant
from tests.support.asgi import ask

pytestmark = pytest.mark.anyio


@contextlib.contextmanager
def without_collections():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def test_the_error_of_a_refused_request_is_freed(start_app):
    app = await start_app()
    with without_collections():
        response = await ask(app, "POST", "/v1/chat/completions", {"messages": 5})
        assert response.status == 400
        assert [error for error in gc.get_objects() if isinstance(error, APIError)] == []


class Cycle:
    """What refers to a scope, as uvicorn's cycle does."""

    def __init__(self, scope):
        self.scope = scope
        scope["extensions"] = extensions_of(self)


async def test_the_cycle_of_a_request_is_freed():
    async def app(scope, receive, send):
        pass

    async def serve():
        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        cycle = Cycle(scope)
        await with_tenant(with_request_id(app), Keys(()))(scope, None, None)
        return weakref.ref(cycle)

    with without_collections():
        assert (await serve())() is None
