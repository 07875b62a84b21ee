"""Streams and objects of POST /v1/responses, checked against the types of the official SDK."""

from __future__ import annotations

from typing import Any

import msgspec
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def events_of(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each checked against the SDK's types."""
    *frames, done, nothing = data.split(b"\n\n")
    assert (done, nothing) == (b"data: [DONE]", b"")
    found = []
    for number, frame in enumerate(frames):
        name, _, body = frame.partition(b"\n")
        event = msgspec.json.decode(body.removeprefix(b"data: "))
        assert name == f"event: {event['type']}".encode()
        assert event["sequence_number"] == number
        EVENTS.validate_python(event, strict=True)
        found.append(event)
    return found


def checked_response(body: bytes) -> dict[str, Any]:
    """A response, checked against the SDK's types."""
    response = msgspec.json.decode(body)
    Response.model_validate(response, strict=True)
    return response


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    """A response to compare with another: ids and times are new in every one."""
    output = [
        {key: value for key, value in item.items() if key not in {"id", "call_id"}}
        for item in response["output"]
    ]
    return response | {"output": output, "completed_at": None}
