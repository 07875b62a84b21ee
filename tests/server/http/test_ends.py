"""How streams end that cannot go on, in the shape of each API."""

import json

import pytest

import server.apis  # noqa: F401 - registers the APIs
from server.http.apis import NDJSON, SSE
from server.http.ends import failure_event, last_bytes, refusal_event
from server.http.errors import APIError

EVENT = b'data: {"type":"x","sequence_number":7}\n\n'


def data_of(event):
    *_, line, _, _ = event.split(b"\n")
    return json.loads(line.removeprefix(b"data: "))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_openai(path):
    event = last_bytes(path, SSE, EVENT, "broke")
    assert event.startswith(b"data: ")
    assert data_of(event)["error"]["message"] == "broke"
    assert data_of(event)["error"]["type"] == "server_error"


def test_anthropic():
    event = last_bytes("/v1/messages", SSE, EVENT, "broke")
    assert event.startswith(b"event: error\n")
    assert data_of(event)["type"] == "error"
    assert data_of(event)["error"] == {"type": "api_error", "message": "broke"}


def test_responses_go_on_counting():
    event = last_bytes("/v1/responses", SSE, EVENT, "broke")
    assert event.startswith(b"event: error\n")
    assert data_of(event) == {
        "type": "error",
        "code": None,
        "message": "broke",
        "param": None,
        "sequence_number": 8,
    }


def test_ollama():
    line = last_bytes("/api/chat", NDJSON, b"{}\n", "broke")
    assert json.loads(line) == {"error": "broke"}
    assert line.endswith(b"\n")


@pytest.mark.parametrize(
    ("media_type", "last"),
    [(SSE, b'data: {"a'), (SSE, b"data: {}\n"), (NDJSON, b'{"a"'), ("application/json", b"{")],
)
def test_in_the_middle_of_an_event_nothing_can_be_said(media_type, last):
    assert last_bytes("/v1/chat/completions", media_type, last, "broke") is None


def test_a_refusal_after_comments_is_an_event():
    error = APIError(503, "no room", code="x")
    assert data_of(failure_event("/v1/completions", error, "id"))["error"]["message"] == "no room"
    event = data_of(failure_event("/v1/messages", error, "id"))
    assert event["error"]["type"] == "overloaded_error"
    body = b'{"error": {"message": "bad n", "type": "t", "param": "n", "code": "c"}}'
    assert data_of(refusal_event("/v1/chat/completions", body)) == json.loads(body)
    assert data_of(refusal_event("/v1/responses", body))["param"] == "n"
    assert data_of(refusal_event("/v1/responses", b"<html>"))["type"] == "error"
    assert b"\n\n" not in refusal_event("/v1/chat/completions", b"<html>\n\n</html>")[:-2]
