"""Requests and streams of POST /v1/responses."""

from typing import Any

from compat_tests.support.api import Api, Json
from compat_tests.support.http import strict_json

RESPONSES = "/v1/responses"

WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def body_of(api: Api, given: Any = "Hello!", **fields: Any) -> Json:
    """A greedy request."""
    return {"model": api.server.model, "input": given, "temperature": 0} | fields


def respond(api: Api, given: Any = "Hello!", **fields: Any) -> Json:
    """A whole response."""
    return api.ok(RESPONSES, body_of(api, given, **fields))


def stream(api: Api, given: Any = "Hello!", **fields: Any) -> list[Json]:
    """The events of a stream, its framing and its numbers checked."""
    reply = api.post(RESPONSES, body_of(api, given, **fields) | {"stream": True})
    assert reply.status == 200, reply.text
    assert (reply.header("content-type") or "").startswith("text/event-stream")
    return events_of(reply.body)


def events_of(data: bytes) -> list[Json]:
    """The events of a whole body. Each has two lines; comments are left out."""
    *frames, done, nothing = data.split(b"\n\n")
    assert (done, nothing) == (b"data: [DONE]", b"")
    events = []
    for frame in frames:
        if frame.startswith(b":"):
            continue
        name, line = frame.split(b"\n")
        event = strict_json(line.removeprefix(b"data: "))
        assert name == f"event: {event['type']}".encode()
        assert event["sequence_number"] == len(events)
        events.append(event)
    return events


def text_of(response: Json) -> str:
    """The text of all messages."""
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


def without_ids(items: list[Json]) -> list[Json]:
    """Items to compare: ids are new in every response."""
    return [{k: v for k, v in item.items() if k not in {"id", "call_id"}} for item in items]
