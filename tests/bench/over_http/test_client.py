import asyncio
import json

import anyio
import pytest

from bench.over_http.client import CompletionClient, served_model
from bench.over_http.connection import ConnectionFailed, ServerAddress

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 4,
    "prompt_tokens_details": {"cached_tokens": 2},
}


def event(*choices, **fields):
    return b"data: " + json.dumps({"choices": list(choices), **fields}).encode() + b"\n\n"


def piece(text, **fields):
    return event({"text": text, **fields})


def chunked(*pieces):
    return [b"%x\r\n%s\r\n" % (len(p), p) for p in pieces] + [b"0\r\n\r\n"]


DONE = b"data: [DONE]\n\n"
ANSWER = (
    piece("one"),
    piece(""),
    piece(" two"),
    piece(" three", finish_reason="length"),
    event(usage=USAGE),
    DONE,
)


async def run(server, *, prompt="hello", max_tokens=4, **options):
    return await CompletionClient(server.url, "m", **options).run(prompt, max_tokens)


async def test_a_streamed_answer_is_timed_and_counted(start_server):
    server = await start_server(OK + b"Transfer-Encoding: chunked\r\n\r\n", *chunked(*ANSWER))
    seen = []
    client = CompletionClient(server.url, "m", extra={"temperature": 0, "n": 1}, api_key="key")
    record = await client.run("hello", 4, lambda record: seen.append(len(record.token_times)))
    assert record.error is None
    assert record.is_completed
    assert (record.status, record.finish_reason) == (200, "length")
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (5, 4, 2)
    assert not record.estimated
    assert seen == [1, 2, 3]
    assert record.due == record.submit <= record.first <= record.last <= record.end
    (head, body), *others = server.requests
    assert not others
    assert head.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert b"\r\nauthorization: Bearer key\r\n" in head
    assert json.loads(body) == {
        "model": "m",
        "prompt": "hello",
        "max_tokens": 4,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "n": 1,
    }


async def test_a_prompt_may_be_token_ids(start_server):
    server = await start_server(OK + b"\r\n", *ANSWER)
    record = await run(server, prompt=[1, 2])
    assert record.error is None  # an answer without a length ends with its connection
    assert json.loads(server.requests[0][1])["prompt"] == [1, 2]


async def test_chat_counts_all_kinds_of_text(start_server):
    deltas = [
        {"delta": {"role": "assistant", "content": ""}},
        {"delta": {"reasoning_content": "hm"}},
        {"delta": {"content": "hi"}},
        {"delta": {"tool_calls": [{"index": 0}]}},
        {"delta": {}, "finish_reason": "tool_calls"},
    ]
    server = await start_server(OK + b"\r\n", *map(event, deltas), DONE)
    record = await run(server, prompt=" hello", chat=True)
    assert record.error is None
    assert (len(record.token_times), record.finish_reason) == (3, "tool_calls")
    head, body = server.requests[0]
    assert head.startswith(b"POST /v1/chat/completions ")
    assert json.loads(body)["messages"] == [{"role": "user", "content": "hello"}]


async def test_a_chat_of_token_ids_is_refused():
    with pytest.raises(TypeError):
        await CompletionClient("http://127.0.0.1:9/v1", "m", chat=True).run([1], 1)


async def test_without_usage_pieces_are_counted_as_tokens(start_server):
    server = await start_server(OK + b"\r\n", *ANSWER[:4], DONE)
    record = await run(server)
    assert record.estimated
    assert (record.completion_tokens, record.cached_tokens) == (3, None)


async def test_the_due_time_is_recorded(start_server):
    server = await start_server(OK + b"\r\n", *ANSWER)
    record = await CompletionClient(server.url, "m").run("x", 1, due=1.5)
    assert record.due == 1.5
    assert record.lag == record.submit - 1.5


async def test_an_interim_answer_is_skipped(start_server):
    server = await start_server(b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"\r\n", *ANSWER)
    assert (await run(server)).error is None


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"], "without a finish reason"),
        ([OK + b"Content-Length: 900\r\n\r\n", piece("x")], "closed the connection"),
        (
            [OK + b"Transfer-Encoding: chunked\r\n\r\n", chunked(piece("x"))[0]],
            "closed the connection",
        ),
        ([OK + b"\r\n", piece("x")], "without a finish reason"),
        ([], "closed the connection"),
        ([b"hello\r\n\r\n"], "is not HTTP"),
        ([OK + b"\r\n", b"data: nonsense\n\n", *ANSWER], "cannot decode an event"),
        ([OK + b"\r\n", piece("x"), event(error={"message": "out of luck"}), DONE], "out of luck"),
    ],
)
async def test_an_incomplete_answer_is_an_error(start_server, pieces, says):
    record = await run(await start_server(*pieces))
    assert says in record.error
    assert not record.is_completed
    assert record.end >= record.submit


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"error": {"message": "Too\\nmany."}}', "Too many."),
        (b'{"message": "no"}', "no"),
        (b"plain", "plain"),
        (b"[1]", "[1]"),
    ],
)
async def test_a_refused_request_is_rejected_with_the_servers_message(start_server, body, says):
    head = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: %d\r\n\r\n" % len(body)
    record = await run(await start_server(head + body))
    assert record.is_rejected
    assert record.error == f"HTTP 429: {says}"
    assert not record.estimated


async def test_a_closed_port_is_an_error():
    with anyio.fail_after(10):
        server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        record = await CompletionClient(f"http://127.0.0.1:{port}/v1", "m").run("x", 1)
    assert "cannot connect" in record.error
    assert record.status == 0


async def test_a_silent_server_is_an_error_after_the_timeout(start_server):
    server = await start_server(is_closing=False)
    record = await run(server, timeout=0.01)
    assert record.error == "not finished after 0.01 s"


async def test_served_model_is_the_first_that_the_server_lists(start_server):
    body = b'{"object": "list", "data": [{"id": "a/b"}, {"id": "c"}]}'
    server = await start_server(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body)
    assert await served_model(server.url) == "a/b"
    assert server.requests[0][0].startswith(b"GET /v1/models HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{" + b'"data": []}',
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\nno",
        b"",
    ],
)
async def test_a_server_without_models_is_an_error(start_server, answer):
    server = await start_server(answer)
    with pytest.raises(ConnectionFailed):
        await served_model(server.url)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x/v1", "http://", "http://x/v1?a=b"])
def test_a_wrong_url_is_refused(url):
    with pytest.raises(ValueError, match="is not an http or https URL"):
        CompletionClient(url, "m")


def test_an_endpoint_has_the_default_port_of_its_scheme():
    assert ServerAddress("http://host/v1").address.port == 80
    secure = ServerAddress("https://user:word@host/v1/")
    assert secure.address.port == 443
    assert secure.address.is_tls
    assert secure.request("GET", "/models").startswith(b"GET /v1/models HTTP/1.1\r\nhost: host\r\n")
