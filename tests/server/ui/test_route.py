"""The page over HTTP: its headers, ETags, and what it does not need or allow."""

import threading

import pytest

from core.contract.errors import ModelLoadError
from server.app.app import create_app
from server.app.edge import with_edge
from server.settings.settings import Settings, parse_settings
from server.ui.routes import INDEX, read_files
from tests.support.asgi import ask

pytestmark = pytest.mark.anyio

PAGES = ["/", *(f"/ui/{name}" for name in read_files())]


async def test_the_page_and_all_its_files_are_served_with_their_types(start_app):
    app = await start_app()
    files = read_files()
    for path in PAGES:
        answer = await ask(app, "GET", path)
        file = files[INDEX if path == "/" else path.removeprefix("/ui/")]
        assert answer.status == 200
        assert answer.body == file.content
        charset = "; charset=utf-8" if file.media_type.startswith("text/") else ""
        assert answer.headers["content-type"] == file.media_type + charset
        assert answer.headers["content-length"] == str(len(file.content))
        assert answer.headers["x-request-id"]


async def test_a_known_etag_is_answered_without_the_file(start_app):
    app = await start_app()
    for path in PAGES:
        first = await ask(app, "GET", path)
        again = await ask(app, "GET", path, headers={"if-none-match": first.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert again.headers["cache-control"] == first.headers["cache-control"] == "no-cache"
        other = await ask(app, "GET", path, headers={"if-none-match": '"other"'})
        assert (other.status, other.body) == (200, first.body)


async def test_the_policy_allows_this_server_only(start_app):
    app = await start_app()
    for path in PAGES:
        headers = (await ask(app, "GET", path)).headers
        policy = dict(
            directive.split(" ", 1) for directive in headers["content-security-policy"].split("; ")
        )
        assert policy.pop("default-src") == "'none'"
        assert policy.pop("require-trusted-types-for") == "'script'"
        assert policy.pop("trusted-types") == "'none'"
        assert set(policy.values()) == {"'self'", "'none'"}  # nothing inline, no other host
        assert {"script-src", "style-src", "connect-src", "frame-ancestors"} <= set(policy)
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert "microphone=()" in headers["permissions-policy"]


async def test_the_files_need_no_key_and_the_data_does(start_app):
    app = await start_app(api_keys=("k",))
    for path in PAGES:
        assert (await ask(app, "GET", path)).status == 200
    for path in ("/stats", "/v1/models"):
        assert (await ask(app, "GET", path)).status == 401


async def test_a_page_of_another_site_cannot_use_it(start_app):
    app = await start_app()
    for headers in (
        {"host": "evil.example"},
        {"host": "localhost", "origin": "http://evil.example"},
    ):
        for path in ("/", "/ui/app.js", "/stats"):
            assert (await ask(app, "GET", path, headers=headers)).status == 403
    mine = {"host": "localhost:8000", "origin": "http://localhost:8000"}
    assert (await ask(app, "GET", "/", headers=mine)).status == 200


@pytest.mark.parametrize(
    "path", ["/ui", "/ui/", "/ui/x", "/ui/../settings.py", "/ui/%2e%2e/route.py"]
)
async def test_nothing_else_is_there(start_app, path):
    answer = await ask(await start_app(), "GET", path)
    assert (answer.status, answer.json["error"]["code"]) == (404, "unknown_url")


async def test_other_methods_are_refused(start_app):
    app = await start_app()
    for path in ("/", "/ui/app.js"):
        assert (await ask(app, "POST", path, {})).status == 405
        head = await ask(app, "HEAD", path)
        assert (head.status, head.body) == (200, b"")


async def test_the_page_is_there_before_the_model():
    gate = threading.Event()

    def load():
        gate.wait()
        raise ModelLoadError("no such model")

    app = create_app(Settings(), load=load)
    async with app.lifespan():
        asgi = with_edge(app)
        assert (await ask(asgi, "GET", "/health")).json["status"] == "loading"
        for path in PAGES:
            assert (await ask(asgi, "GET", path)).status == 200
        gate.set()


async def test_no_ui_turns_it_off(start_app):
    app = await start_app(ui=False)
    for path in PAGES:
        answer = await ask(app, "GET", path)
        assert (answer.status, answer.json["error"]["code"]) == (404, "unknown_url")
    assert (await ask(app, "GET", "/health")).status == 200


def test_the_flag():
    assert Settings().ui is True
    assert parse_settings(["serve"], {}).ui is True
    assert parse_settings(["serve", "--no-ui"], {}).ui is False
    assert parse_settings(["serve"], {"ROSEINFER_NO_UI": "1"}).ui is False
