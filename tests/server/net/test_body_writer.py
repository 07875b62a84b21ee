"""BodyWriter on a real connection, beside uvicorn's own ``send``."""

import anyio
import pytest

from server.net.body_writer import body_writer
from tests.server.net.conftest import EchoApp

pytestmark = pytest.mark.anyio

HEAD = b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"


class WritingApp(EchoApp):
    """Answers in pieces: ``direct`` says which are written and not sent."""

    direct = ()
    end = None

    async def __call__(self, scope, receive, send):
        writer = self.writer = body_writer(scope)
        assert not writer.is_ready  # the status has not been sent
        headers = [] if self.end is None else self.headers
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, piece in enumerate([b"a", b"bc" * 20, b"d", b"\r\n"]):
            if number in self.direct:
                assert writer.is_ready
                writer.write(piece)
            else:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        if self.end is not None:
            await self.end(writer)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        assert not writer.is_ready
        self.num_started += 1
        self._notify()


@pytest.fixture
def app():
    return WritingApp()


async def test_written_pieces_are_the_bytes_of_sent_ones(connect, app):
    client = await connect()
    answers = []
    for direct in ((), (0, 1, 2, 3), (1, 2)):
        app.direct = direct
        await client.send(HEAD)
        while not client._buffer.endswith(b"0\r\n\r\n"):
            assert await client._fill()
        answers.append(client._buffer)
        client._buffer = b""
    assert answers[0].endswith(
        b"\r\n\r\n1\r\na\r\n28\r\n" + b"bc" * 20 + b"\r\n1\r\nd\r\n2\r\n\r\n\r\n0\r\n\r\n"
    )
    assert answers == answers[:1] * 3


async def test_a_client_that_does_not_read_makes_it_not_ready(connect, app):
    async def flood(writer):
        while writer.is_ready:
            writer.write(b"x" * 10_000)

    app.end = flood
    client = await connect(buffer=4096)
    await client.send(HEAD)
    assert not app.writer.is_ready
    assert app.num_started == 0  # its last send waits
    while not client._buffer.endswith(b"0\r\n\r\n"):
        assert await client._fill()
    await app.until(lambda: app.num_started == 1)


async def test_a_client_that_has_left_makes_it_not_ready(connect, app):
    left = anyio.Event()

    async def wait(writer):
        assert writer.is_ready
        await left.wait()
        assert not writer.is_ready

    app.end = wait
    client = await connect()
    await client.send(HEAD)
    client.close()
    await client.seen()
    left.set()
    await app.until(lambda: app.num_started == 1)


async def test_a_body_of_known_length_is_sent(connect, app):
    async def check(writer):
        assert not writer.is_ready

    app.end = check
    app.headers = [(b"content-length", b"44")]
    client = await connect()
    await client.send(HEAD)
    assert (await client.reply())[2] == b"a" + b"bc" * 20 + b"d\r\n"
    await app.until(lambda: app.num_started == 1)


async def test_an_answer_before_the_end_of_the_body_ends_the_connection(connect, app):
    app.headers, app.end = [(b"content-length", b"44")], no_more
    client = await connect()
    await client.send(HEAD)
    assert "connection" not in (await client.reply())[1]
    await client.send(b"GET / HTTP/1.1\r\ncontent-length: 3\r\n\r\nab")
    assert (await client.reply())[1]["connection"] == "close"
    await client.send(b"c" + HEAD)
    assert await client.ended()
    assert app.num_started == 2


@pytest.mark.parametrize("connection", [b"", b"connection: keep-alive\r\n"])
async def test_http_1_0_gets_no_chunks(connect, app, connection):
    client = await connect()
    await client.send(b"POST / HTTP/1.0\r\n" + connection + b"content-length: 0\r\n\r\n")
    await client.ended()
    head, _, body = client._buffer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()
    assert body == b"a" + b"bc" * 20 + b"d\r\n"


async def test_http_1_0_gets_a_known_length(connect, app):
    app.headers, app.end = [(b"content-length", b"44")], no_more
    client = await connect()
    await client.send(b"POST / HTTP/1.0\r\ncontent-length: 0\r\n\r\n")
    assert (await client.reply())[2] == b"a" + b"bc" * 20 + b"d\r\n"
    assert await client.ended()


async def no_more(_writer):
    """Send nothing besides."""
