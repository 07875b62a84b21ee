"""LimitedProtocol over a pair of sockets. No time passes: the clock is scripted."""

import contextlib
import json
import tracemalloc

import anyio
import pytest

from server.http.apis import ID_KEY
from server.http.errors import CUT_KEY
from server.net import refusal

pytestmark = pytest.mark.anyio

HEAD = b"POST / HTTP/1.1\r\nhost: h\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def chunk(data, extension=b""):
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


async def test_a_request_is_answered_and_the_connection_kept(connect, app):
    client = await connect()
    for body in (b"", b"abc"):
        await client.request(body)
        status, headers, answer = await client.reply()
        assert (status, answer) == (200, b"%d" % len(body))
        assert "connection" not in headers
    assert app.bodies == [b"", b"abc"]


# Heads


async def test_a_header_without_end_is_refused_at_its_limit(connect, app):
    client = await connect(max_head_size=1000)
    await client.send(b"GET / HTTP/1.1\r\nx: ")
    for _ in range(9):
        await client.send(b"a" * 100)
    assert client.protocol._phase.name == "HEAD"
    await client.send(b"a" * 100)
    assert await client.refusal() == 431
    assert app.scopes == []


async def test_a_header_without_end_keeps_little_memory(connect):
    client, piece = await connect(), b"a" * 100_000
    tracemalloc.start()
    try:
        await client.send(b"GET / HTTP/1.1\r\nx: ")
        for _ in range(100):
            await client.send(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20
    assert await client.refusal() == 431


@pytest.mark.parametrize("size", [950, 1050])
async def test_a_whole_head_is_measured(connect, size):
    client = await connect(max_head_size=1000)
    await client.request(headers=f"x: {'a' * (size - 30)}\r\n")
    assert (await client.reply())[0] == (200 if size < 1000 else 431)


async def test_a_large_body_beside_a_small_head_is_no_large_head(connect):
    client = await connect(max_head_size=1000)
    await client.request(b"a" * 5000)
    assert (await client.reply())[2] == b"5000"


async def test_the_number_of_headers_is_limited(connect):
    client = await connect(max_headers=5)
    await client.request(headers="x: y\r\n" * 4)
    assert (await client.reply())[0] == 200
    await client.request(headers="x: y\r\n" * 5)
    assert await client.refusal() == 431


async def test_a_long_request_line_is_refused(connect):
    client = await connect(max_url_size=50)
    await client.request(path="/" + "a" * 49)
    assert (await client.reply())[0] == 200
    await client.send(b"GET /" + b"a" * 50)
    assert await client.refusal() == 414


async def test_a_head_has_a_deadline(connect, loop):
    client = await connect()
    await client.send(b"GET / HTTP/1.1\r\n")
    loop.advance(9.9)
    await client.send(b"x: y\r\n")
    loop.advance(0.2)
    assert await client.refusal() == 408


async def test_the_deadline_of_a_head_begins_with_its_first_byte(connect, loop):
    client = await connect()
    loop.advance(50)
    await client.send(b"GET / HTTP/1.1\r\n")
    loop.advance(9.9)
    await client.send(b"\r\n")
    assert (await client.reply())[0] == 200


async def test_the_deadline_of_a_later_head_begins_with_its_first_byte(connect, loop):
    client = await connect()
    await client.request()
    await client.reply()
    loop.advance(50)
    await client.send(b"GET / HTTP/1.1\r\n")
    loop.advance(9.9)
    await client.send(b"\r\n")
    assert (await client.reply())[0] == 200
    await client.send(b"GET / HTTP/1.1\r\n")
    loop.advance(10)
    assert await client.refusal() == 408


async def test_a_silent_connection_is_closed_without_a_word(connect, loop):
    client = await connect()
    loop.advance(59)
    assert client.protocol._phase.name == "REQUEST"
    loop.advance(2)
    assert await client.ended()


async def assert_only_idle_time_ends(client, loop):
    """The connection ends 60 s after an answer, however long it has been open."""
    await client.request()
    await client.reply()
    loop.advance(59)
    await client.request()
    await client.reply()
    loop.advance(61)
    assert await client.ended()


async def test_an_idle_connection_is_closed(connect, loop):
    client = await connect(idle_timeout=60)
    await assert_only_idle_time_ends(client, loop)


async def test_the_time_of_an_answer_is_no_idle_time(connect, app, loop):
    client = await connect(idle_timeout=60)
    await client.request()
    await client.reply()
    loop.advance(59)
    app.gate = anyio.Event()
    await client.request()
    loop.advance(2)
    app.gate.set()
    assert (await client.reply())[0] == 200


@pytest.mark.parametrize("data", [b"HELLO\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n"])
async def test_what_is_no_http_is_refused(connect, data):
    client = await connect()
    await client.send(data)
    assert await client.refusal() == 400


@pytest.mark.parametrize(
    "headers",
    [
        "transfer-encoding: chunked\r\n",  # beside content-length
        "content-length: 5\r\n",
        "x : y\r\n",
        " x: y\r\n",
    ],
)
async def test_ambiguous_heads_are_refused(connect, app, headers):
    client = await connect()
    await client.request(b"abc", headers=headers)
    assert await client.refusal() == 400
    assert app.bodies == []


# Bodies


async def test_a_body_below_the_rate_is_refused(connect, app, loop):
    client = await connect(body_grace=30, body_rate=1000)
    await client.send(HEAD + b"content-length: 100000\r\n\r\n")
    for _ in range(3):
        loop.advance(10)
        await client.send(b"a" * 1000)
    loop.advance(2.9)  # 3,000 bytes bought three seconds
    assert app.num_disconnects == 0
    loop.advance(0.2)
    assert await client.refusal() == 408
    await app.until(lambda: app.num_disconnects == 1)


async def test_a_refusal_in_a_body_is_known_to_the_record_of_the_request(connect, app, loop):
    client = await connect(body_grace=30)
    await client.send(HEAD + b"content-length: 100\r\n\r\n")
    state = app.scopes[0]["state"]
    state[ID_KEY] = "mine"
    loop.advance(31)
    status, headers, _ = await client.reply()
    assert (status, state[CUT_KEY].status) == (408, 408)
    assert headers["x-request-id"] == "mine"


async def test_a_body_at_the_rate_arrives(connect, loop):
    client = await connect(body_grace=30, body_rate=1000)
    await client.send(HEAD + b"content-length: 100000\r\n\r\n")
    for _ in range(100):
        await client.send(b"a" * 1000)
        loop.advance(1)
    assert (await client.reply())[2] == b"100000"


async def test_time_in_which_the_application_does_not_read_is_not_counted(connect, app, loop):
    app.begin = anyio.Event()
    client = await connect(body_grace=30)
    await client.send(HEAD + b"content-length: 200000\r\n\r\n" + b"a" * 100_000)
    loop.advance(300)
    app.begin.set()
    await client.send(b"a" * 100_000)
    assert (await client.reply())[2] == b"200000"


async def test_time_before_100_continue_is_not_counted(connect, app, loop):
    app.begin = anyio.Event()
    client = await connect(body_grace=30)
    await client.send(HEAD + b"content-length: 3\r\nexpect: 100-continue\r\n\r\n")
    loop.advance(300)
    app.begin.set()
    await client.seen()
    await client.send(b"abc")
    while client._buffer[-1:] != b"3":
        assert await client._fill()
    assert client._buffer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")


async def test_chunks_are_joined(connect, app):
    client = await connect()
    await client.send(CHUNKED)
    for number in range(50):
        await client.send(chunk(b"%d " % number, b";name=value"))
    await client.send(b"0\r\nx-trailer: 1\r\nhost: evil\r\n\r\n")
    assert (await client.reply())[0] == 200
    assert app.bodies == [b"".join(b"%d " % number for number in range(50))]
    names = [name for name, _ in app.scopes[0]["headers"]]
    assert names == [b"host", b"transfer-encoding"], "trailers are dropped"


async def refused_framing(client, data):
    """Send until the protocol refuses; the status."""
    await client.send(CHUNKED + chunk(b"a"))
    for _ in range(4):
        if client.protocol._phase.name != "END":
            await client.send(data)
    return await client.refusal()


async def test_chunks_without_end_are_refused(connect):
    client = await connect(max_framing_size=1000)
    assert await refused_framing(client, chunk(b"a") * 100) == 400


async def test_the_chunks_of_each_body_are_measured_alone(connect):
    client = await connect(max_framing_size=1000)
    for _ in range(3):
        for data in (CHUNKED, chunk(b"a") * 150, b"0\r\n\r\n"):
            await client.send(data)
        assert (await client.reply())[2] == b"150"


@pytest.mark.parametrize(
    "data",
    [b"5;" + b"x" * 1000, b"0\r\nx: " + b"y" * 1000, b"0\r\n" + b"x: y\r\n" * 200],
    ids=["extension", "trailer", "trailers"],
)
async def test_extensions_and_trailers_without_end_are_refused(connect, data):
    client = await connect(max_head_size=1000)
    assert await refused_framing(client, data) == 400


async def test_bytes_that_are_no_chunk_are_refused(connect, app):
    client = await connect()
    await client.send(CHUNKED + b"zz\r\n")
    assert await client.refusal() == 400
    await app.until(lambda: app.num_disconnects == 1)


async def test_a_client_can_go_on_sending_to_an_application_that_did_not_read(connect, app):
    app.begin = anyio.Event()
    client = await connect()
    await client.send(CHUNKED + chunk(b"a" * 100_000) + b"zz\r\n")
    for _ in range(50):
        await client.send(b"a" * 100_000)
    app.begin.set()
    assert (await client.reply())[0] == 400


async def test_an_answer_that_has_begun_is_cut_where_a_refusal_is_due(connect, app):
    app.is_early, app.parts = True, [b"a" * 200_000] * 10
    client = await connect(buffer=4096)
    await client.send(CHUNKED)
    await app.until(lambda: app.num_started == 1)
    await client.send(b"zz\r\n")
    await client.ended()
    assert client._buffer.count(b"HTTP/1.1") == 1
    assert len(client._buffer) < 2_000_000


@pytest.mark.parametrize("headers", [[], [(b"connection", b"close")]])
async def test_an_early_answer_can_be_read_while_sending(connect, app, loop, headers):
    app.is_early, app.headers = True, headers
    client = await connect(idle_timeout=1)
    await client.send(HEAD + b"content-length: 1000000\r\n\r\n" + b"a" * 1000)
    for _ in range(20):
        await client.send(b"a" * 10_000)
    assert (await client.reply())[0] == 200
    assert await client.ended()
    loop.advance(2)
    await client.seen()
    await client.send(b"a" * 10_000)  # the connection is not reset
    loop.advance(6)
    await client.seen()
    with pytest.raises(ConnectionError):
        await client.send(b"a")


async def test_after_a_whole_body_there_is_nothing_to_wait_for(connect, limit):
    client = await connect()
    await client.send(HEAD + b"connection: close\r\ncontent-length: 3\r\n\r\n")
    await client.send(b"abc")
    assert (await client.reply())[0] == 200
    assert await client.ended()
    await client.seen()
    assert len(limit.open) == 0


# Upgrades


@pytest.mark.parametrize("split", [0, 1, 30, 85, 86, 87, 88, 150])
async def test_a_wish_for_another_protocol_is_ignored(connect, app, split):
    """As Java's HTTP client and ``curl --http2`` send it."""
    wish = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEA\r\n"
    client = await connect()
    for body in (b"abc", b"de"):
        data = f"POST /x?y HTTP/1.1\r\n{wish}content-length: {len(body)}\r\n\r\n".encode() + body
        for part in (data[:split], data[split:]):
            if part:
                await client.send(part)
        assert (await client.reply())[::2] == (200, b"%d" % len(body))
    assert app.bodies == [b"abc", b"de"]
    scope = app.scopes[0]
    assert (scope["method"], scope["path"], scope["query_string"]) == ("POST", "/x", b"y")
    assert b"upgrade" not in dict(scope["headers"])


async def test_a_chunked_body_with_a_wish_for_another_protocol(connect, app):
    client = await connect()
    await client.send(CHUNKED[:-2] + b"connection: upgrade, close\r\nupgrade: websocket\r\n\r\n")
    await client.send(chunk(b"abc") + b"0\r\n\r\n")
    status, headers, _ = await client.reply()
    assert (status, headers["connection"]) == (200, "close")
    assert app.bodies == [b"abc"]


async def test_there_are_no_tunnels(connect, app):
    client = await connect()
    await client.send(b"CONNECT evil.example:443 HTTP/1.1\r\nhost: h\r\n\r\n")
    assert await client.refusal() == 400
    assert app.scopes == []


# Pipelining


async def test_a_second_request_ends_the_connection_after_the_first_answer(connect, app):
    app.gate = anyio.Event()
    client = await connect()
    await client.send((HEAD + b"content-length: 1\r\n\r\na") * 3)
    await client.send(b"GET / HTTP/1.1\r\n\r\n")
    app.gate.set()
    status, headers, _ = await client.reply()
    assert (status, headers["connection"]) == (200, "close")
    assert await client.ended()
    assert app.bodies == [b"a"]


async def test_line_ends_after_a_body_are_no_second_request(connect, app):
    app.gate = anyio.Event()
    client = await connect()
    await client.request(b"abc\r\n"[:3])
    await client.send(b"\r\n")
    app.gate.set()
    _, headers, _ = await client.reply()
    assert "connection" not in headers
    await client.request(b"ab")
    assert (await client.reply())[2] == b"2"


async def test_a_client_that_leaves_behind_a_second_request_is_noticed(connect, app):
    app.gate = anyio.Event()
    client = await connect()
    await client.send((HEAD + b"content-length: 1\r\n\r\na") * 2)
    await app.until(lambda: app.num_started == 1)
    client.close()
    await app.until(lambda: app.num_disconnects == 1)


async def test_garbage_beside_an_answer_is_dropped(connect, app):
    app.gate = anyio.Event()
    client = await connect()
    await client.request()
    await client.send(b"\x00\xffgarbage\r\n\r\n")
    app.gate.set()
    assert (await client.reply())[0] == 200
    assert await client.ended()


async def test_a_flood_beside_an_answer_ends_it(connect, app):
    app.gate = anyio.Event()
    client = await connect(max_head_size=1000)
    await client.request()
    await app.until(lambda: app.num_started == 1)
    await client.send(b"GET / HTTP/1.1\r\n")
    await client.send(b"x: y\r\n" * 200)
    await app.until(lambda: app.num_disconnects == 1)


# Answers


async def begin_unread(connect, app):
    """A client that has sent a request and read nothing of its answer yet."""
    client = await connect(buffer=4096)
    await client.request()
    await app.until(lambda: app.num_started == 1)
    await client.seen()
    return client


async def test_a_client_that_does_not_read_is_disconnected(connect, app, loop):
    app.parts = [b"a" * 100_000] * 10
    client = await begin_unread(connect, app)
    loop.advance(59)
    await client.seen()
    assert app.num_disconnects == 0
    loop.advance(2)
    await app.until(lambda: app.num_disconnects == 1)


async def test_a_client_that_reads_in_time_gets_its_answer(connect, app, loop):
    app.parts = [b"a" * 100_000] * 10
    client = await begin_unread(connect, app)
    loop.advance(59)
    reading = client.reply()
    _, _, body = await reading
    assert len(body) == 1_000_000
    loop.advance(59)
    await client.request()
    assert (await client.reply())[0] == 200


async def test_the_write_timeout_begins_again_when_the_client_has_read(connect, app, loop):
    app.parts = [b"a" * 200_000] * 10
    client = await begin_unread(connect, app)
    loop.advance(59)
    while len(client._buffer) < 600_000:
        assert await client._fill()
    await client.seen()
    loop.advance(59)
    await client.seen()
    assert app.num_disconnects == 0
    loop.advance(2)
    await app.until(lambda: app.num_disconnects == 1)


async def test_the_end_of_an_answer_must_be_read_too(connect, app, loop, limit):
    app.parts = [b"a" * 50_000]  # the server need not wait to write this
    client = await connect(buffer=4096)
    await client.request(headers="connection: close\r\n")
    await client.seen()
    loop.advance(59)
    await client.seen()
    assert len(limit.open) == 1
    loop.advance(2)
    await client.seen()
    assert len(limit.open) == 0


# The connection limit


async def test_answers_end_connections_when_the_server_is_crowded(connect, limit):
    first = await connect()
    await first.request()
    assert "connection" not in (await first.reply())[1]
    others = [await connect() for _ in range(7)]
    assert limit.is_crowded
    await first.request()
    assert (await first.reply())[1]["connection"] == "close"
    assert await first.ended()
    assert len(others) == 7


async def test_the_oldest_without_a_request_ends_for_another(connect, app, loop, limit):
    app.gate = anyio.Event()
    clients = [await connect() for _ in range(10)]
    await clients[0].request()
    await clients[1].send(b"GET / HTTP/1.1\r\n")  # younger now than the silent ones
    await app.until(lambda: app.num_started == 1)
    loop.advance(1)
    clients += [await connect() for _ in range(8)]
    for client in clients[2:10]:
        assert await client.refusal() == 503
    clients.append(await connect())
    assert await clients[1].refusal() == 503
    assert len(limit.open) == 10
    app.gate.set()
    assert (await clients[0].reply())[0] == 200


async def test_an_idle_one_ends_for_another_without_a_word(connect, loop):
    idle = await connect()
    await idle.request()
    await idle.reply()
    others = [await connect() for _ in range(6)]  # more would end it after its answer
    await others[0].request()
    loop.advance(1)
    others += [await connect() for _ in range(4)]
    assert await idle.ended()
    assert (await others[0].reply())[0] == 200


async def test_one_that_sends_when_it_was_ended_reads_why(connect, loop):
    slow = await connect()
    loop.advance(1)
    assert [await connect() for _ in range(10)]
    with contextlib.suppress(ConnectionError):
        await slow.request()
    assert await slow.refusal() == 503


async def test_one_that_ends_for_another_still_sends_its_answer(connect, app, loop):
    app.parts = [b"a" * 50_000]
    client = await begin_unread(connect, app)
    loop.advance(1)
    assert [await connect() for _ in range(10)]
    assert len((await client.reply())[2]) == 50_000
    assert await client.ended()


async def test_one_that_is_refused_may_read_why(connect, loop, limit):
    refused = await connect()
    await refused.send(b"HELLO\r\n\r\n")
    loop.advance(1)
    assert [await connect() for _ in range(10)]
    await refused.seen()
    assert len(limit.open) == 11
    assert await refused.refusal() == 400


async def test_a_full_server_is_no_fault_of_the_client():
    body = refusal.closing_response(refusal.busy()).partition(b"\r\n\r\n")[2]
    assert json.loads(body)["error"]["type"] == "service_unavailable_error"


async def test_requests_above_the_limit_are_marked_and_end_their_connections(connect, app, caplog):
    app.gate = anyio.Event()
    clients = [await connect() for _ in range(11)]
    for client in clients:
        await client.request()
    await app.until(lambda: app.num_started == 11)
    app.gate.set()
    assert (await clients[10].reply())[1]["connection"] == "close"
    assert await clients[10].ended()
    assert [refusal.BUSY_KEY in scope["state"] for scope in app.scopes] == [False] * 10 + [True]
    assert caplog.messages[0].startswith("All 10 connections are in use")
