"""An upstream's answer, cut anywhere, and the client that it is passed to."""

import asyncio
from contextlib import closing
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.client.answer import Address, NotSent, ServerAnswer, ServerFailed, Silent

pytestmark = pytest.mark.anyio

BODY = b"data: 1\n\ndata: two\n\ndata: [DONE]\n\n"
CHUNKED = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (BODY[:9], BODY[9:]))
FORMS = {
    "length": b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY),
    "chunks": b"transfer-encoding: chunked\r\n\r\n" + CHUNKED + b"0\r\n\r\n",
    "trailers": b"transfer-encoding: chunked\r\n\r\n" + CHUNKED + b"0\r\nx: y\r\n\r\n",
    "end": b"\r\n" + BODY,
}


class Transport:
    def __init__(self):
        self.written = b""
        self.is_reading = True
        self.is_aborted = False

    def set_write_buffer_limits(self, high):
        assert high == 0

    def writelines(self, parts):
        self.written += b"".join(parts)

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self):
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self):
        self.is_reading = True

    def abort(self):
        self.is_aborted = True


class Writer:
    """A client's writer, which is ready or not."""

    def __init__(self, is_ready=True):
        self.is_ready = is_ready
        self.written = []

    def write(self, data):
        assert self.is_ready
        self.written.append(data)


def new_answer(**options):
    answer = ServerAnswer(b"request", silence=0.0, **options)
    transport = Transport()
    answer.connection_made(transport)
    return answer, transport


async def read(answer):
    await answer.head()
    body = b""
    while True:
        data, is_last = await answer.receive()
        body += data
        if is_last:
            return body


@pytest.mark.parametrize("form", FORMS)
@given(cuts=st.lists(st.integers(0, 200), max_size=6), interim=st.booleans())
def test_an_answer_is_the_same_however_it_is_cut(form, cuts, interim):
    async def check():
        answer, transport = new_answer()
        assert transport.written == b"request"
        data = b"HTTP/1.1 100 Continue\r\n\r\n" if interim else b""
        data += b"HTTP/1.1 200 OK\r\nX-A: b\r\n" + FORMS[form]
        places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
        task = asyncio.ensure_future(read(answer))
        for start, end in pairwise(places):
            answer.data_received(data[start:end])
            await asyncio.sleep(0)
        answer.connection_lost(None)
        assert await task == BODY
        assert answer.status == 200
        assert answer.headers[0] == (b"x-a", b"b")

    asyncio.run(check())


@pytest.mark.parametrize("form", ["length", "chunks"])
@pytest.mark.parametrize("size", [0, 10, 60, 70])
async def test_an_answer_without_its_end_fails(form, size):
    answer, _ = new_answer()
    data = b"HTTP/1.1 200 OK\r\n" + FORMS[form]
    answer.data_received(data[:size])
    answer.connection_lost(None)
    with pytest.raises(ServerFailed, match="closed the connection"):
        await read(answer)


@pytest.mark.parametrize(
    "data", [b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"]
)
async def test_what_is_no_http_fails(data):
    answer, transport = new_answer()
    answer.data_received(data)
    assert transport.is_aborted
    with pytest.raises(ServerFailed, match="not HTTP"):
        await answer.head()


async def test_pieces_go_to_the_client_where_they_arrive_and_wait_if_it_is_slow():
    answer, transport = new_answer()
    writer = Writer()
    answer.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    await answer.head()
    answer.writer = writer
    task = asyncio.ensure_future(answer.receive())
    await asyncio.sleep(0)
    answer.data_received(b"1\r\na\r\n1\r\nb\r\n")  # the task waits, the client is ready
    assert writer.written == [b"ab"]
    assert not task.done()
    writer.is_ready = False
    answer.data_received(b"1\r\nc\r\n")
    assert not transport.is_reading
    writer.is_ready = True
    answer.data_received(b"1\r\nd\r\n")  # the task has not written c yet: d must not overtake it
    assert writer.written == [b"ab"]
    assert await task == (b"cd", False)
    answer.data_received(b"1\r\ne\r\n")  # the task is writing
    assert writer.written == [b"ab"]
    assert await answer.receive() == (b"e", False)
    task = asyncio.ensure_future(answer.receive())
    await asyncio.sleep(0)
    assert transport.is_reading
    answer.data_received(b"1\r\nf\r\n0\r\n\r\n")
    assert writer.written == [b"ab"]
    assert await task == (b"f", True)
    assert answer.last == b"f"


PARTS = [b"data: 1\n\n", b"\r\n", b"9\r\n", b"x" * 300, b"b\r\n", b"0\r\n\r\n", b"data: [DONE]\n\n"]
SENT = b"".join(b"%X\r\n%b\r\n" % (len(part), part) for part in PARTS) + b"0\r\n\r\n"


@given(cuts=st.lists(st.integers(0, len(SENT)), max_size=12))
def test_chunks_that_go_to_the_client_are_the_same_however_they_are_cut(cuts):
    async def check():
        answer, _ = new_answer()
        answer.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await answer.head()
        writer = Writer()
        answer.writer = writer
        task = asyncio.ensure_future(read(answer))
        await asyncio.sleep(0)
        for start, end in pairwise(sorted({0, len(SENT), *cuts})):
            answer.data_received(SENT[start:end])
        rest = await task
        assert b"".join(writer.written) + rest == b"".join(PARTS)

    asyncio.run(check())


class Clock:
    """The running loop, but for its clock and its one timer."""

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self.create_future = self._loop.create_future
        self._now = 100.0
        self._due = self._callback = None

    def time(self):
        return self._now

    def call_at(self, due, callback):
        self._due, self._callback = due, callback
        return self

    def call_later(self, seconds, callback):
        return self.call_at(self._now + seconds, callback)

    def cancel(self):
        self._due = None

    def advance(self, seconds):
        end = self._now + seconds
        while self._due is not None and self._due <= end:
            self._now, self._due = self._due, None
            self._callback()
        self._now = end


@pytest.fixture
async def clock():
    return Clock()


@pytest.fixture
def timed(clock, monkeypatch):
    """An answer whose server may be silent for 10 seconds of a clock that stands still."""
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    answer = ServerAnswer(b"", silence=10.0)
    monkeypatch.undo()
    answer.connection_made(Transport())
    return answer


async def test_silence_before_the_answer_is_an_error(timed, clock):
    clock.advance(9.0)
    timed.data_received(b"HTTP/1.1 100 Continue\r\n\r\n")
    clock.advance(9.0)
    task = asyncio.ensure_future(timed.head())
    await asyncio.sleep(0)
    assert not task.done()
    clock.advance(1.0)
    with pytest.raises(Silent, match="sent nothing for 10 s"):
        await task


async def test_a_server_that_is_not_read_is_not_silent(timed, clock):
    timed.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
    clock.advance(1000.0)  # nobody takes the piece
    assert await timed.receive() == (b"a", False)
    task = asyncio.ensure_future(timed.receive())
    await asyncio.sleep(0)
    clock.advance(9.0)
    assert not task.done()
    clock.advance(11.0)
    with pytest.raises(Silent):
        await task


@pytest.mark.parametrize("is_connected", [False, True])
async def test_a_connection_at_the_last_moment_may_have_brought_the_request(
    is_connected, monkeypatch
):
    transport = Transport()

    async def connect(make, *_args, **_options):
        answer = make()
        if is_connected:
            answer.connection_made(transport)
        await asyncio.sleep(60)

    class Loop:
        create_connection = staticmethod(connect)
        time = staticmethod(asyncio.get_running_loop().time)

    monkeypatch.setattr("server.client.answer.asyncio.get_running_loop", Loop)
    answer = ServerAnswer(b"request", silence=0.0)
    with closing(answer), pytest.raises(ServerFailed) as raised:
        await answer.connect(Address("h", 1), 0.01)
    assert isinstance(raised.value, NotSent) is not is_connected
    assert (transport.written, transport.is_aborted) == (b"request" * is_connected, is_connected)
