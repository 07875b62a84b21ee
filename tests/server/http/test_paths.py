"""Every spelling of a path that the router accepts is seen as one path by everything before it."""

import pytest

from server.http.paths import normalize

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
def test_extra_slashes_go_and_the_raw_path_says_the_same(path, found):
    scope = {"path": path, "raw_path": b"raw"}
    normalize(scope)
    assert scope["path"] == found
    assert scope["raw_path"] == (b"raw" if path == found else found.encode())
