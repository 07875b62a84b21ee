"""The middleware of Serve's proxies, in front of applications that behave like Serve."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from server.ray.edge import HELD_BODIES, Edge
from server.router.call import conversation_key
from tests.support.asgi import Exchange

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
BODY = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()
EVENT = b'data: {"choices": []}\n\n'


class Serve:
    """Answers every request with the same messages; keeps what it was sent."""

    def __init__(self, *messages, status=200, media_type=b"application/json", headers=()):
        head = [(b"content-type", media_type), (b"x-request-id", b"of the replica"), *headers]
        self._messages = [
            {"type": "http.response.start", "status": status, "headers": head},
            *({"type": "http.response.body", **message} for message in messages),
        ]
        self.headers = []
        self.body = b""
        self.after = None

    async def __call__(self, scope, receive, send):
        self.headers = scope["headers"]
        message = await receive()
        self.body = message["body"]
        assert not message["more_body"]
        for answer in self._messages:
            await send(answer)

    def header(self, name):
        [value] = [value for key, value in self.headers if key == name]
        return value


async def exchange(serve, *, path=CHAT, chunks=(BODY,), headers=None, limit=1000, **options):
    own = Exchange("POST", path, chunks=chunks, headers=headers, **options)
    await own.run(Edge(serve, max_body_size=limit))
    assert own.failure is None
    return own


def values(answer, name):
    return [value.decode() for key, value in answer.messages[0]["headers"] if key == name.encode()]


async def test_a_conversation_is_named_for_the_router():
    serve = Serve({"body": b"{}"})
    await exchange(serve, chunks=(BODY[:10], BODY[10:]))
    assert serve.body == BODY
    assert serve.header(b"x-session-id") == conversation_key(BODY).hex().encode()


async def test_a_client_may_name_its_session():
    serve = Serve({"body": b"{}"})
    await exchange(serve, headers={"x-session-id": "own"})
    assert serve.header(b"x-session-id") == b"own"


async def test_a_body_without_a_conversation_has_no_session():
    serve = Serve({"body": b"{}"})
    await exchange(serve, chunks=(b"{",))
    assert b"x-session-id" not in dict(serve.headers)


async def test_an_answer_has_one_id():
    """Serve adds one to that of the replica."""
    serve = Serve({"body": b"{}"}, headers=[(b"X-Request-ID", b"of the proxy")])
    answer = await exchange(serve, headers={"x-request-id": "mine"})
    assert values(answer, "x-request-id") == ["mine"]
    assert serve.header(b"x-request-id") == b"mine"
    answer = await exchange(serve, headers={"x-request-id": "not safe\n"})
    assert values(answer, "x-request-id") == [serve.header(b"x-request-id").decode()]
    assert values(answer, "x-request-id") != ["not safe\n"]


@pytest.mark.parametrize(
    ("status", "kind", "code", "is_worth_a_retry"),
    [
        (429, "requests", "rate_limit_exceeded", True),
        (503, "service_unavailable_error", "server_is_overloaded", True),
        (500, "server_error", None, True),
        (404, "invalid_request_error", "unknown_url", False),
    ],
)
async def test_refusals_of_serve_get_the_shape_of_the_api(status, kind, code, is_worth_a_retry):
    text = b"ray.exceptions.Something at 0x7f0000000000"
    serve = Serve({"body": text}, status=status, media_type=b"text/plain; charset=utf-8")
    answer = await exchange(serve)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-should-retry"] == str(is_worth_a_retry).lower()
    assert ("retry-after" in answer.headers) == is_worth_a_retry
    error = json.loads(answer.body)["error"]
    assert (error["type"], error["code"]) == (kind, code)
    assert "ray" not in error["message"]


@pytest.mark.parametrize("prefix", ["/small", "/api", "/api/small"])
async def test_a_refusal_below_a_prefix_has_the_shape_of_its_api(prefix):
    serve = Serve({"body": b"busy"}, status=503, media_type=b"text/plain")
    answer = await exchange(serve, path=f"{prefix}/v1/messages")
    assert json.loads(answer.body)["type"] == "error"
    assert answer.headers["request-id"] == answer.headers["x-request-id"]


async def test_text_of_a_replica_and_of_the_proxy_itself_stays():
    serve = Serve({"body": b"# metrics"}, media_type=b"text/plain")
    assert (await exchange(serve, path="/metrics")).body == b"# metrics"
    serve = Serve({"body": b"draining"}, status=503, media_type=b"text/plain")
    assert (await exchange(serve, path="/-/healthz")).body == b"draining"


async def test_a_stream_whose_replica_ends_gets_an_error_event():
    serve = Serve({"body": EVENT, "more_body": True}, media_type=b"text/event-stream")
    answer = await exchange(serve)
    event = answer.body.removeprefix(EVENT)
    assert event.startswith(b'data: {"error":')
    assert event.endswith(b"}\n\n")
    assert b"[DONE]" not in answer.body
    assert answer.has_ended


@pytest.mark.parametrize("media_type", [b"text/event-stream", b"application/json"])
async def test_what_cannot_be_ended_truthfully_is_cut(media_type):
    serve = Serve({"body": b'data: {"choi', "more_body": True}, media_type=media_type)
    answer = await exchange(serve)
    assert answer.body == b'data: {"choi'
    assert not answer.has_ended


async def test_a_replica_that_ends_before_its_answer_is_an_error_worth_a_retry():
    class Lost(Serve):
        async def __call__(self, scope, receive, send):
            pass

    answer = await exchange(Lost())
    assert answer.status == 502
    assert answer.headers["x-should-retry"] == "true"
    assert answer.json["error"]["type"] == "server_error"


async def test_a_whole_stream_stays_as_it_is():
    pieces = [EVENT, b"data: [DONE]\n\n"]
    serve = Serve(
        *({"body": piece, "more_body": True} for piece in pieces),
        {"body": b""},
        media_type=b"text/event-stream",
    )
    answer = await exchange(serve)
    assert answer.body == b"".join(pieces)
    assert answer.has_ended


@pytest.mark.parametrize(
    ("chunks", "headers"),
    [((b"x" * 11,), {"content-length": "11"}), ((b"x" * 6, b"x" * 5), {})],
)
async def test_a_body_over_the_limit_is_refused(chunks, headers):
    serve = Serve({"body": b"{}"})
    answer = await exchange(serve, chunks=chunks, headers=headers, limit=10)
    assert answer.status == 413
    assert json.loads(answer.body)["error"]["code"] == "request_too_large"
    assert serve.headers == []


async def test_bodies_that_arrive_together_have_a_limit_and_leave_it():
    serve = Serve({"body": b"{}"})
    edge = Edge(serve, max_body_size=10)
    edge.bodies.add("127.0.0.1", HELD_BODIES * 5 - 5)
    held = Exchange("POST", CHAT, chunks=(b"x" * 6,))
    await held.run(edge)
    assert held.status == 429
    small = Exchange("POST", CHAT, chunks=(b"{}",))
    await small.run(edge)
    assert small.status == 200
    assert edge.bodies.held == HELD_BODIES * 5 - 5


async def test_bodies_of_two_addresses_shut_no_other_out():
    serve = Serve({"body": b"{}"})
    edge = Edge(serve, max_body_size=10)
    for address in ("192.0.2.1", "192.0.2.2"):
        edge.bodies.add(address, HELD_BODIES * 10 // 2)
        own = Exchange("POST", CHAT, chunks=(b"{}",))
        own.scope["client"] = (address, 1)
        await own.run(edge)
        assert own.status == 429
    other = Exchange("POST", CHAT, chunks=(b"x" * 10,))
    await other.run(edge)
    assert other.status == 200
    edge.bodies.add("192.0.2.3", 10)
    other = Exchange("POST", CHAT, chunks=(b"{}",))
    await other.run(edge)
    assert other.status == 429, "no more than the room and its reserve"


async def test_a_body_is_not_kept_while_it_is_answered(request):
    class Measured(Serve):
        async def __call__(self, scope, receive, send):
            await receive()  # Serve has passed it on
            self.num_bytes, _peak = tracemalloc.get_traced_memory()
            for answer in self._messages:
                await send(answer)

    serve = Measured({"body": b"{}"})
    chunks = (b"x" * 10**6, b"x" * 10**6)
    request.addfinalizer(tracemalloc.stop)
    tracemalloc.start()
    assert (await exchange(serve, chunks=chunks, limit=3 * 10**6)).status == 200
    assert serve.num_bytes < 10**6, "somebody keeps the body"


async def test_a_client_that_leaves_before_its_body_has_arrived_reaches_no_replica():
    serve = Serve({"body": b"{}"})
    own = Exchange("POST", CHAT, chunks=(b"{",), is_complete=False)
    own.disconnect()
    await own.run(Edge(serve, max_body_size=10))
    assert serve.headers == []
