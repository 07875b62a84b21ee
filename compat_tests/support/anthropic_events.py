"""Streams of the Messages API, as strictly as the protocol asks for them."""

from typing import Any

from compat_tests.support.http import strict_json


def events_of(body: bytes) -> list[Any]:
    """The data of a stream's events, without pings. The name of each is its type."""
    assert b"\r" not in body, "events end in LF"
    *events, nothing = body.split(b"\n\n")
    assert nothing == b""
    found = []
    for event in events:
        name, data = event.split(b"\n")
        decoded = strict_json(data.removeprefix(b"data: "))
        assert name == b"event: " + decoded["type"].encode()
        found.append(decoded)
    return [event for event in found if event["type"] != "ping"]


def message_of(events: list[Any]) -> Any:
    """The message that a whole stream adds up to."""
    start, *inner, end, stop = events
    assert (start["type"], stop) == ("message_start", {"type": "message_stop"})
    blocks: list[Any] = []
    texts: list[str] = []
    for event in inner:
        match event["type"]:
            case "content_block_start":
                blocks.append(dict(event["content_block"]))
                texts.append("")
            case "content_block_delta":
                assert event["index"] == len(blocks) - 1
                _add(blocks, texts, event["delta"])
            case "content_block_stop" if texts[-1]:
                blocks[-1]["input"] = strict_json(texts[-1])
    return start["message"] | {"content": blocks, **end["delta"], "usage": end["usage"]}


def _add(blocks: list[Any], texts: list[str], delta: Any) -> None:
    match delta["type"]:
        case "text_delta":
            blocks[-1]["text"] += delta["text"]
        case "thinking_delta":
            blocks[-1]["thinking"] += delta["thinking"]
        case "signature_delta":
            blocks[-1]["signature"] += delta["signature"]
        case "input_json_delta":
            texts[-1] += delta["partial_json"]
        case other:
            raise AssertionError(other)
