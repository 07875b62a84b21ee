import pytest

from tests.support.asgi import ask

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/v1/models", "/nowhere", "/generate"])
async def test_head_has_the_status_and_headers_of_get(start_app, path):
    app = await start_app()
    get, head = [await ask(app, method, path) for method in ("GET", "HEAD")]
    assert head.status == get.status
    assert head.body == b""
    own = {"x-request-id", "openai-processing-ms"}
    assert {k: v for k, v in head.headers.items() if k not in own} == {
        k: v for k, v in get.headers.items() if k not in own
    }


async def test_head_needs_the_key_of_get(start_app):
    app = await start_app(api_keys=("k",))
    assert (await ask(app, "HEAD", "/v1/models")).status == 401
    assert (await ask(app, "HEAD", "/health")).status == 200
