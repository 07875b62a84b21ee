"""decoded_size is above what the objects of hostile and ordinary bodies take, as measured."""

from __future__ import annotations

import gc
import json
import tracemalloc

import msgspec
import pytest

from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.responses_request import ResponsesRequest
from server.http.decoding import Punctuation, decode_request, decoded_size
from tests.schemas.conftest import BODIES

USER = {"role": "user", "content": "hi"}
MANY = 5000

PARAMETERS = {
    "small objects": [{"a": 1}] * MANY,
    "objects of six keys": [dict.fromkeys("abcdef", 1)] * MANY,
    "one large object": {f"{i:05}": i * 1000 for i in range(MANY)},
    "a table that has grown just now": {f"{i:05}": i * 1000 for i in range(5462)},
    "and is doubled soon": {f"{i:05}": i * 1000 for i in range(5461)},
    "keys that no cache has": {f"{i:050}": None for i in range(MANY)},
    "empty objects": [{}] * MANY,
    "empty lists": [[]] * MANY,
    "lists of one": [[300.5]] * MANY,
    "lists in lists": [[[[[]]]]] * MANY,
    "letters": ["a"] * MANY,
    "wide letters": ["\U0001f98a"] * MANY,
    "numbers": [*range(1000, 1000 + MANY)],
    "decimals": [i / 7 for i in range(MANY)],
}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXTS = {
    "Latin": "x" * 10**6,
    "one wide character": "x" * 10**6 + "\U0001f98a",
    "wide": "\U0001f98a" * 10**5,
}


def chat(**fields):
    return {"messages": [USER]} | fields


def cases():
    for name, value in PARAMETERS.items():
        tool = {"type": "function", "function": {"name": "f", "parameters": {"a": value}}}
        yield f"tools: {name}", ChatCompletionRequest, chat(tools=[tool])
    for name, text in TEXTS.items():
        yield name, ChatCompletionRequest, {"messages": [{"role": "user", "content": text}]}
    part = {"type": "text", "text": "a"}
    yield "parts", ChatCompletionRequest, {"messages": [{"role": "user", "content": [part] * MANY}]}
    yield "messages", ChatCompletionRequest, {"messages": [USER] * 4096}
    calls = {"role": "assistant", "tool_calls": [CALL] * 1000}
    yield "calls", ChatCompletionRequest, {"messages": [USER, *[calls] * 5]}
    yield "ids", CompletionRequest, {"prompt": [*range(1000, 1000 + MANY)]}
    yield "prompts of one id", CompletionRequest, {"prompt": [[1000]] * MANY}
    yield "prompts", CompletionRequest, {"prompt": ["a"] * MANY}
    yield "biases", CompletionRequest, {"logit_bias": {str(i): i / 70 for i in range(1000)}}
    yield "items", ResponsesRequest, {"model": "m", "input": [USER] * MANY}
    reference = {"type": "item_reference", "id": "msg_1"}
    yield "references", ResponsesRequest, {"model": "m", "input": [reference] * MANY}
    output = {"type": "function_call_output", "call_id": "c", "output": "a"}
    yield "outputs", ResponsesRequest, {"model": "m", "input": [output] * MANY}
    for type_, body in BODIES.items():
        yield type_.__name__, type_, body


def taken(body, type_):
    """Bytes that are allocated for the objects of a body."""
    decode_request(body, type_)  # types and caches come with the first one
    gc.collect()
    tracemalloc.start()
    try:
        decoded = decode_request(body, type_)
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    return size, decoded.size


@pytest.mark.parametrize(
    ("type_", "request_"), [pytest.param(*case[1:], id=case[0]) for case in cases()]
)
@pytest.mark.parametrize("is_ascii", [False, True])
def test_is_an_upper_bound(type_, request_, is_ascii):
    body = json.dumps(request_, ensure_ascii=is_ascii, separators=(",", ":")).encode()
    size, most = taken(body, type_)
    assert size <= most == decoded_size(body, Punctuation(body))


def test_of_a_text_it_is_the_text():
    body = msgspec.json.encode({"messages": [{"role": "user", "content": "x" * 10**6}]})
    assert decoded_size(body, Punctuation(body)) < len(body) + 10_000
