"""The loop of a chat, with a server of scripted bytes."""

from __future__ import annotations

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from server.cli.chat.chat import Chat, ChatSpeed
from server.cli.chat.client import ChatClient, ChatError, Ending, StartError, answers_at
from server.cli.chat.flags import ChatSettings
from server.cli.chat.terminal import PlainScreen, Prompt


def event(**fields):
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text(content=None, finish=None, **delta):
    return event(choices=[{"delta": {"content": content, **delta}, "finish_reason": finish}])


ANSWER = [
    b": keep-alive\n\n",
    text("", role="assistant"),
    text(None, reasoning_content="Hm."),
    text("Hel"),
    text("lo"),
    text(None, "stop"),
    event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3}),
    b"data: [DONE]\n\n",
]


class Server(ThreadingHTTPServer):
    answers = (ANSWER,)
    status = 200
    list_status = 200


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply(self.server.list_status, json.dumps({"data": [{"id": "m"}]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        index = min(len(server.bodies), len(server.answers) - 1)
        server.bodies.append(body)
        server.keys.append(self.headers.get("Authorization"))
        self.reply(server.status, b"".join(server.answers[index]))

    def reply(self, status, data):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def server():
    with Server(("127.0.0.1", 0), Handler) as server:
        server.bodies, server.keys = [], []
        server.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def said(server, lines, **settings):
    """What a chat of these lines prints, and the chat."""
    out = io.StringIO()
    client = ChatClient(server.url, "k")
    try:
        chat = Chat(
            ChatSettings(**settings),
            client,
            client.served_model(),
            Prompt(source=io.StringIO("\n".join(lines) + "\n")),
            PlainScreen(is_terminal=False, out=out),
        )
        chat.run()
    finally:
        client.close()
    return out.getvalue(), chat


def test_answers_are_printed_and_remembered(server):
    printed, chat = said(server, ["One?", "", " /two ", "/quit", "never"], system="Be brief.")
    assert printed == "Hello\nHello\n"
    assert not chat.has_failed
    first, second = server.bodies
    assert first == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "One?"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert [turn["content"] for turn in second["messages"][1:]] == ["One?", "Hello", "/two"]
    assert server.keys == ["Bearer k"] * 2


def test_settings_are_fields_of_the_request(server):
    said(server, ["x"], temperature=0.0, max_tokens=5)
    assert (server.bodies[0]["temperature"], server.bodies[0]["max_tokens"]) == (0.0, 5)


def test_retry_asks_the_last_question_again(server):
    said(server, ["One?", "Two?", "/retry"])
    assert server.bodies[2] == server.bodies[1]


def test_a_question_without_an_answer_can_be_asked_again(server, capsys):
    server.answers = ([event(error={"message": "the engine\nfailed"})], ANSWER)
    printed, chat = said(server, ["One?", "/retry"])
    assert printed == "Hello\n"
    assert chat.has_failed
    assert capsys.readouterr().err == "roseinfer: the engine failed\n"
    assert server.bodies[1] == server.bodies[0]


def test_a_part_of_an_answer_is_kept(server):
    server.answers = (ANSWER[:4], ANSWER)
    printed, chat = said(server, ["One?", "Two?"])
    assert printed == "Hel\nHello\n"
    assert chat.has_failed
    contents = [turn["content"] for turn in server.bodies[1]["messages"]]
    assert contents == ["One?", "Hel", "Two?"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_only_a_line_feed_ends_a_line_of_a_stream(server, separator):
    answer = b"".join(ANSWER).replace(b"Hel", f"H{separator}el".encode())
    server.answers = ([answer],)
    printed, chat = said(server, ["One?"])
    assert printed == f"H{separator}ello\n"
    assert not chat.has_failed


def test_an_error_moves_no_cursor(server, capsys):
    server.answers = ([event(error={"message": "the\x1b[2J engine failed"})],)
    said(server, ["One?"])
    assert capsys.readouterr().err == "roseinfer: the[2J engine failed\n"


def test_a_refusal_is_one_line(server, capsys):
    server.status = 429
    server.answers = ([b'{"error": {"message": "The queue is full."}}'],)
    _, chat = said(server, ["One?"])
    assert chat.has_failed
    assert capsys.readouterr().err == "roseinfer: HTTP 429: The queue is full.\n"


def test_a_message_of_several_lines(server):
    said(server, ['"""a', "b", "", 'c"""', 'plain "quotes"'])
    assert server.bodies[0]["messages"][-1]["content"] == "a\nb\n\nc"
    assert server.bodies[1]["messages"][-1]["content"] == 'plain "quotes"'


def test_commands(server, tmp_path, capsys):
    file = tmp_path / "x.json"
    lines = [
        "/help",
        "/system Be odd.",
        "One?",
        f"/save {file}",
        "/clear",
        "Again?",
        "/clear",
        "/system",
        "Two?",
        f"/load {file}",
        f"/load {tmp_path}/none.json",
        "Three?",
        "/save",
        "/odd",
        "/clear",
        "/retry",
    ]
    said(server, lines)
    bodies = [[turn["content"] for turn in body["messages"]] for body in server.bodies]
    assert bodies == [
        ["Be odd.", "One?"],
        ["Be odd.", "Again?"],
        ["Two?"],
        ["Be odd.", "One?", "Hello", "Three?"],
    ]
    err = capsys.readouterr().err
    for words in (
        "/retry ",
        "Saved to",
        "Loaded 2 messages",
        f"cannot read {tmp_path}/none.json",
        "name a file: /save FILE",
        "there is no command /odd",
        "there is nothing to ask again",
    ):
        assert words in err


def test_a_terminal_gets_thinking_and_no_controls():
    out = io.StringIO()
    screen = PlainScreen(is_terminal=True, out=out)
    screen.thinking("Hm")
    screen.thinking(".")
    screen.text("a\x1b[2Jb")
    screen.end()
    assert out.getvalue() == "\x1b[2mHm.\x1b[0m\n\na[2Jb\n"


def test_a_server_that_is_none(server):
    with pytest.raises(StartError, match=r"cannot reach http://127\.0\.0\.1:9"):
        ChatClient("http://127.0.0.1:9/v1").served_model()
    client = ChatClient(server.url)
    server.answers = ([b"data: nonsense\n\n"],)
    with pytest.raises(ChatError, match="the server sent no chunk"):
        list(client.answer({}, Ending()))
    client.close()


@pytest.mark.parametrize(("status", "found"), [(200, True), (401, True), (404, False)])
def test_a_server_that_wants_a_key_is_there(server, status, found):
    server.list_status = status
    assert answers_at(server.url) is found


def test_rates():
    times = iter([0.0, 0.25, 0.5, 0.75])
    rates = ChatSpeed(lambda: next(times))
    for _ in range(3):
        rates.piece()
    assert rates.line(Ending("stop", 7, 11)) == (
        "7 tokens in the prompt, 11 tokens, 0.25 s to the first, 20.0 tokens/s"
    )
    assert rates.line(Ending()) == ("about 3 tokens, 0.25 s to the first, about 4.0 tokens/s")
    assert ChatSpeed().line(Ending()) == "no text"
