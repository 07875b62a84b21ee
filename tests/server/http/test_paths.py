"""Every spelling of a path that the router accepts is seen as one path by everything before it."""

import pytest

from server.http.paths import with_paths

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"

SPELLINGS = {
    CHAT: CHAT,
    f"{CHAT}/": CHAT,
    f"/{CHAT}": CHAT,
    "/v1//chat///completions//": CHAT,
    "//chat/completions": "/chat/completions",
    "/": "/",
    "//": "/",
    "/v1/models/org/m": "/v1/models/org/m",
    "/v1/models/a b\n": "/v1/models/a b\n",
}


@pytest.mark.parametrize(("path", "found"), SPELLINGS.items())
async def test_extra_slashes_go_and_the_raw_path_says_the_same(path, found):
    async def app(scope, _receive, _send):
        assert scope["path"] == found
        assert scope["raw_path"] == (b"raw" if path == found else found.encode())
        scope["is_seen"] = True

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": b"raw"}
    await with_paths(app, frozenset())(scope, None, None)
    assert scope["is_seen"]
