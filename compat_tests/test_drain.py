"""C-132 and the drain: SIGTERM and Ctrl-C in every state. Each test has a server of its own.

Ctrl-C on an idle server is the end of every session of tests: see ``_running`` in conftest.py.
"""

import signal

from compat_tests.support import sse
from compat_tests.support.api import CHAT, Api, chat_text_of, check_error, finish_reasons
from compat_tests.support.http import ConnectionEnded
from compat_tests.support.process import ServerProcess
from compat_tests.support.waiting import PATIENCE, eventually

STORY = "Tell me a story."


def check_end(server: ServerProcess) -> None:
    """Exit code 0, and nothing on stderr that looks like an accident."""
    assert server.wait_exit(PATIENCE) == 0, server.stderr
    assert "Traceback" not in server.stderr, server.stderr
    assert "Error" not in server.stderr, server.stderr
    assert not server.is_listening()


def test_drain_idle(start_server) -> None:
    server = start_server().wait_ready()
    with server.connect() as idle:  # a kept-alive connection does not hold it up
        assert idle.request("GET", "/health").json
        server.signal(signal.SIGTERM)
        check_end(server)


def test_drain_while_loading(start_server) -> None:
    server = start_server().wait_listening()
    status, word = server.health()
    assert (status, word) in {(503, "loading"), (200, "ok")}
    reply = Api(server).post(CHAT, {"messages": [{"role": "user", "content": "x"}]})
    if reply.status != 200:
        assert reply.status == 503
        assert 1 <= float(reply.header("retry-after")) <= 120
        assert check_error(reply)["type"] == "service_unavailable_error"
    server.signal(signal.SIGTERM)
    check_end(server)


def test_c132_running_and_queued_finish_and_new_work_is_refused(start_server) -> None:
    server = start_server("--max-num-seqs", "2", "--drain-timeout", "60").wait_ready()
    api = Api(server)
    fields = {"max_tokens": 700, "ignore_eos": True}
    expected = api.chat_text(STORY, **fields)
    with (
        server.connect() as stream,
        server.connect() as plain,
        server.connect() as queued,
        server.connect() as kept,
    ):
        assert kept.request("GET", "/health").json
        stream.send("POST", CHAT, api.chat_body(STORY, stream=True, **fields))
        plain.send("POST", CHAT, api.chat_body(STORY, **fields))
        eventually(lambda: server.stats()["num_running"] == 2)
        queued.send("POST", CHAT, api.chat_body(STORY, max_tokens=3))
        eventually(lambda: server.stats()["num_waiting"] == 1)
        server.signal(signal.SIGTERM)

        def is_draining() -> bool:
            answer = kept.request("GET", "/health")
            return answer.json["status"] == "draining" and answer.status == 503

        eventually(is_draining)
        reply = kept.request("POST", CHAT, api.chat_body(max_tokens=1))
        assert reply.status == 503
        assert 1 <= float(reply.header("retry-after")) <= 120
        assert check_error(reply)["type"] == "service_unavailable_error"
        with server.connect() as fresh:  # still listening, so that probes get an answer
            assert fresh.request("POST", CHAT, api.chat_body(max_tokens=1)).status == 503
        chunks = sse.payloads(stream.read_reply().body)
        assert chat_text_of(chunks) == expected
        assert finish_reasons(chunks) == ["length"]
        answer = plain.read_reply()
        assert answer.status == 200
        assert answer.json["choices"][0]["message"]["content"] == expected
        # what waited was accepted as well
        last = queued.read_reply()
        assert last.status == 200
        assert last.json["usage"]["completion_tokens"] == 3
        check_end(server)


def test_drain_timeout_ends_what_is_left(start_server) -> None:
    """A stream gets an error event, a whole answer a 503, and a reader that stalls is cut off."""
    server = start_server("--drain-timeout", "0.5").wait_ready()
    api = Api(server)
    endless = {"max_tokens": 1900, "ignore_eos": True}
    with (
        server.connect() as stream,
        server.connect() as plain,
        server.connect(receive_buffer=2048) as stalled,
    ):
        stream.send("POST", CHAT, api.chat_body(STORY, stream=True, n=3, **endless))
        plain.send("POST", CHAT, api.chat_body(STORY, **endless))
        stalled.send("POST", CHAT, api.chat_body(STORY, stream=True, n=8, **endless))
        eventually(lambda: server.stats()["num_running"] == 12)
        server.signal(signal.SIGINT)
        chunks = sse.payloads(stream.read_reply().body)
        assert set(chunks[-1]) == {"error"}
        assert set(chunks[-1]["error"]) == {"message", "type", "param", "code"}
        assert all(finish_reasons(chunks[:-1], index) == [] for index in range(3))
        answer = plain.read_reply()
        assert answer.status in {500, 503}
        check_error(answer)
        check_end(server)


def test_drain_second_signal_leaves_at_once(start_server) -> None:
    server = start_server("--drain-timeout", "60").wait_ready()
    api = Api(server)
    body = api.chat_body(STORY, stream=True, max_tokens=1900, ignore_eos=True)
    with server.connect() as stream:
        stream.send("POST", CHAT, body)
        eventually(lambda: server.stats()["num_running"] == 1)
        server.signal(signal.SIGINT)
        eventually(lambda: server.health()[1] == "draining")
        server.signal(signal.SIGINT)
        check_end(server)
        try:
            chunks = sse.payloads(stream.read_reply().body)
        except (ConnectionEnded, ConnectionError, AssertionError):
            return  # cut off: at once means at once
        assert finish_reasons(chunks) == []


def test_drain_sigint_ends_a_server_that_a_shell_started_in_its_background(start_server) -> None:
    """A shell without job control lets such processes ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        server = start_server()
    finally:
        signal.signal(signal.SIGINT, before)
    server.wait_ready().signal(signal.SIGINT)
    check_end(server)
