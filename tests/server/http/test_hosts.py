import pytest

from server.http.origins import HostPolicy
from server.settings.settings import Settings
from tests.support.asgi import Exchange, ask

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"

LOCAL = ["localhost", "localhost:8000", "LocalHost.:1", "127.0.0.1:8000", "[::1]:8000", "[::1]"]
ADDRESSES = ["192.0.2.1", "[2001:db8::1]:8000", "127.0.0.2"]
FOREIGN = ["evil.example", "evil.example:8000", "localhost.evil.example", "localhostx"]
MALFORMED = [
    "",
    ":",
    ":80",
    "[",
    "[]",
    "[x]",
    "a b",
    "a@localhost",
    "localhost:x",
    "localhost/",
    "é",
]


def policy(host="127.0.0.1", **settings):
    return HostPolicy.of(Settings(host=host, **settings))


@pytest.mark.parametrize("bound", ["127.0.0.1", "::1", "localhost"])
async def test_hosts_on_loopback(bound):
    allows = policy(bound).allows_host
    assert all(map(allows, LOCAL + ADDRESSES))
    assert not any(map(allows, FOREIGN + MALFORMED))


async def test_origins_on_loopback():
    allows = policy().allows_origin
    for host in LOCAL:
        assert allows(f"http://{host}")
        assert allows(f"HTTPS://{host}")
    # A page may come from any address, so an address is no reason to trust it.
    for host in ADDRESSES + FOREIGN + MALFORMED:
        assert not allows(f"http://{host}")
    for origin in ("", "null", "*", "localhost", "file://localhost", "http://localhost/x"):
        assert not allows(origin)


async def test_allowed_hosts_are_added_to_the_names_of_loopback():
    for bound in ("127.0.0.1", "::", ""):
        given = policy(bound, allowed_hosts=("llm.example", "Other.example:443"))
        for host in ("llm.example", "LLM.example:8000", "other.example", *LOCAL, *ADDRESSES):
            assert given.allows_host(host)
        assert given.allows_origin("https://llm.example")
        assert not any(map(given.allows_host, FOREIGN + MALFORMED))
        assert not given.allows_origin("http://evil.example")


async def test_allowed_origins_are_added():
    given = policy(allowed_origins=("https://Page.example", "null"))
    assert given.allows_origin("https://page.example")
    assert given.allows_origin("null")
    assert not given.allows_origin("http://page.example")
    assert not given.allows_origin("https://page.example:8443")
    assert not given.allows_host("page.example")
    assert policy(allowed_origins=("*",)).allows_origin("https://any.example")


@pytest.mark.parametrize(
    "settings",
    [{"uds": "socket"}, {"host": ""}, {"host": "::"}, {"allowed_hosts": ("*",)}],
)
async def test_other_servers_accept_every_host_and_origin(settings):
    given = policy(**settings)
    for host in LOCAL + FOREIGN + MALFORMED:
        assert given.allows_host(host)
        assert given.allows_origin(f"http://{host}")


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"host": "evil.example"}, "host_not_allowed"),
        ({"origin": "http://evil.example"}, "origin_not_allowed"),
        ({"host": "localhost", "origin": "null"}, "origin_not_allowed"),
        ({"host": "evil.example", "authorization": "Bearer k"}, "host_not_allowed"),
    ],
)
async def test_a_refusal_comes_before_any_work(start_app, headers, code):
    app = await start_app(api_keys=("k",))
    for method, path in [("POST", CHAT), ("GET", "/health"), ("GET", "/no"), ("OPTIONS", CHAT)]:
        exchange = Exchange(method, path, headers=headers, chunks=[b"x"], is_complete=False)
        await exchange.run(app)
        assert exchange.status == 403
        error = exchange.json["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", code)
        assert "evil" not in error["message"]
        assert exchange.headers["x-should-retry"] == "false"
        assert exchange.headers["connection"] == "close"
        assert exchange.headers["x-request-id"]
        assert exchange._incoming  # the body was not read


async def test_allowed_requests_pass(start_app):
    app = await start_app()
    for headers in ({"host": "localhost"}, {"origin": "http://localhost:3000"}, {}):
        assert (await ask(app, "GET", "/health", headers=headers)).status == 200


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/api/chat", "/health", "/no"])
@pytest.mark.parametrize("settings", [{}, {"allowed_hosts": ("*",)}])
async def test_http_1_1_has_exactly_one_host(start_app, path, settings):
    app = await start_app(**settings)
    for num_hosts in (0, 2):
        exchange = Exchange("POST", path, chunks=[b"x"], is_complete=False)
        exchange.scope["headers"] = [(b"host", b"localhost")] * num_hosts
        await exchange.run(app)
        assert (exchange.status, exchange.headers["connection"]) == (400, "close")
        assert "Host" in str(exchange.json["error"])
        assert exchange.headers["x-request-id"]


async def test_http_1_0_needs_no_host(start_app):
    exchange = Exchange("GET", "/health")
    exchange.scope |= {"headers": [], "http_version": "1.0"}
    await exchange.run(await start_app())
    assert exchange.status == 200
