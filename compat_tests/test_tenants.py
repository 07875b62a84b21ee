"""Who a request is from: keys, addresses, and what each may find out of the others."""

import re

import pytest

from compat_tests.support.api import CHAT, Api
from compat_tests.support.waiting import eventually


def tenant_in_log(api: Api, request_id: str, forwarded: str | None) -> str:
    """The tenant that the access log names for a request."""
    headers = {"x-request-id": request_id, "x-forwarded-for": forwarded, "authorization": None}
    with api.server.connect() as connection:
        assert connection.request("GET", "/health", headers=headers).status == 200
    found = eventually(
        lambda: re.search(rf" ms (\S+) {request_id}$", api.server.stderr, re.MULTILINE),
        what="a line in the access log",
    )
    return found[1]


def test_a_forwarded_address_is_not_believed(api: Api) -> None:
    assert tenant_in_log(api, "spoofed", "203.0.113.9") == "127.0.0.1"


@pytest.mark.parametrize(
    ("forwarded", "tenant"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("spoofed, 203.0.113.9, 127.0.0.1", "203.0.113.9"),
        ("2001:db8::1", "2001:db8::/64"),
        ("not an address", "unknown"),
        (None, "127.0.0.1"),
    ],
)
def test_a_trusted_proxys_is(guarded: Api, forwarded: str | None, tenant: str) -> None:
    request_id = re.sub(r"[^a-z0-9]", "-", f"forwarded-{forwarded}")
    assert tenant_in_log(guarded, request_id, forwarded) == tenant


def test_a_key_does_not_find_the_prompts_of_another(guarded: Api) -> None:
    prompt = "The password is rose. " * 20
    body = guarded.chat_body(prompt, max_tokens=1)
    cached = []
    for key in ("key-one", "key-one", "key-two", "key-two"):
        reply = guarded.post(CHAT, body, {"authorization": f"Bearer {key}"})
        assert reply.status == 200, reply.text
        cached.append(reply.json["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached[0] == cached[2] == 0
    assert cached[1] == cached[3] > 0


def test_the_log_names_no_key(guarded: Api) -> None:
    for key, status in (("key-one", 200), ("key-two", 200), ("key-three", 401)):
        body = guarded.chat_body(f"say {key}", max_tokens=1)
        assert guarded.post(CHAT, body, {"authorization": f"Bearer {key}"}).status == status
    log = guarded.server.stderr
    assert " key#1 " in log
    assert "key-" not in log
