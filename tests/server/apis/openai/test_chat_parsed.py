"""ChatRenderer with thinking and tool calls in the output."""

import functools
import json

import msgspec
import pytest

from core.contract.params import Thinking
from schemas.tools import FunctionDefinition
from server.apis.openai.chat import ChatRenderer
from server.parsers.tool import TOOL_PARSERS
from server.rendering.base import ChatOptions
from tests.support.each import each

TOOLS = [FunctionDefinition(name="get_weather"), FunctionDefinition(name="ping")]
THOUGHT = "I need, é 🙂, the < weather."
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 🙂"}}\n</tool_call>'
PING = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
WEATHER = ("get_weather", '{"city": "Zürich 🙂"}')

# text, thinking, content, calls
TEXTS = [
    ("Hello!", None, "Hello!", []),
    ("A < B, <tool", None, "A < B, <tool", []),
    (CALL, None, None, [WEATHER]),
    (f"Well:\n\n{CALL}\n", None, "Well:", [WEATHER]),
    (f"{CALL}\n{PING}", None, None, [WEATHER, ("ping", "{}")]),
    (f"<think>\n{THOUGHT}\n</think>\n\nHello!", THOUGHT, "Hello!", []),
    (f"<think>{THOUGHT}</think>{PING}", THOUGHT, None, [("ping", "{}")]),
    (f"<think>{THOUGHT} {CALL}</think>\nA {PING}", f"{THOUGHT} {CALL}", "A", [("ping", "{}")]),
    (f"<think>{THOUGHT}", THOUGHT, "", []),
    (f"<think>{THOUGHT}</think>a <tool", THOUGHT, "a <tool", []),
    ("<thi", None, "<thi", []),
    ('<tool_call>\n{"name": "absent", "arguments": {}}\n</tool_call>', None, ..., []),
    ('<tool_call>\n{"name": "ping", "arguments": {"a', None, None, [("ping", '{"a')]),
]


def new_parser(*, parallel=True):
    return TOOL_PARSERS["hermes"](TOOLS, parallel=parallel)


@pytest.fixture
def generate(generate):
    """As ``generate``, of a model that thinks."""
    thinking = Thinking(begin="<think>", end="</think>", end_token_ids=(), is_separate=True)
    return functools.partial(generate, thinking=thinking)


@pytest.fixture
def make(envelope):
    def make(requests, **wanted):
        wanted = {"new_parser": new_parser} | wanted
        common, options = envelope(requests, num_choices=len(requests), **wanted)
        return ChatRenderer(common, ChatOptions(**options))

    return make


@pytest.fixture
def whole(make, asked, generate, whole_of):
    """A whole response with this text."""

    def whole(text, *, finish_reason="stop", logprobs=True, **wanted):
        output = whole_of(generate("id-0", text, finish_reason=finish_reason, logprobs=logprobs))
        return msgspec.json.decode(make(asked(), **wanted).whole([output]))

    return whole


def calls_of(message):
    return [
        (call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls", [])
    ]


def rebuilt(choices):
    """Content, reasoning and calls that the deltas add up to. Each delta has one of them."""
    first, *middle, last = choices
    assert first["delta"] == {"role": "assistant", "content": None, "refusal": None}
    assert last["delta"] == {}
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    content, thought, calls = "", "", []
    for choice in middle:
        match choice["delta"]:
            case {"content": text, **others}:
                assert text
                assert not others
                content += text
            case {"reasoning_content": text, "reasoning": same, **others}:
                assert text == same != ""
                assert not others
                assert not content
                assert not calls
                thought += text
            case {"tool_calls": [{"index": index, "id": call_id, **opening}], **others}:
                assert index == len(calls)
                assert opening["type"] == "function"
                assert opening["function"]["arguments"] == ""
                assert not others
                calls.append([call_id, opening["function"]["name"], ""])
            case {"tool_calls": [{"index": index, "function": {"arguments": text}}]}:
                assert index == len(calls) - 1
                assert text
                calls[-1][2] += text
            case delta:
                raise AssertionError(delta)
    return content, thought, calls


@each(("text", "thought", "content", "calls"), TEXTS)
def test_the_message(whole, text, thought, content, calls):
    [choice] = whole(text)["choices"]
    message = choice["message"]
    assert message["content"] == (text if content is ... else content)
    assert message.get("reasoning_content") == message.get("reasoning") == thought
    assert calls_of(message) == calls
    assert ("tool_calls" in message) == bool(calls)
    assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
    ids = [call["id"] for call in message.get("tool_calls", [])]
    assert len(set(ids)) == len(ids)


@each(("text", "thought", "content", "calls"), TEXTS)
@each("shows_reasoning", [True, False])
def test_the_stream_equals_the_whole_response(
    make, asked, generate, split, stream, whole_of, text, thought, content, calls, shows_reasoning
):
    requests = asked(n=2)
    texts = [text, f"{CALL}\n{PING}" if text.startswith("<think>") else f"{THOUGHT} {PING}"]
    wanted = {
        "num_top": 1,
        "return_token_ids": True,
        "include_usage": True,
        "shows_reasoning": shows_reasoning,
    }
    outputs = [generate(f"id-{i}", texts[i]) for i in range(2)]
    whole = msgspec.json.decode(make(requests, **wanted).whole([whole_of(o) for o in outputs]))
    *chunks, usage = stream(make(requests, **wanted), [split(o) for o in outputs])
    assert usage["usage"] == whole["usage"]
    assert bool(usage["usage"]["completion_tokens_details"]["reasoning_tokens"]) == bool(thought)
    for index, choice in enumerate(whole["choices"]):
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        said, thoughts, made = rebuilt(own)
        message = choice["message"]
        assert said == (message["content"] or "")
        assert thoughts == message.get("reasoning", "")
        if index == 0:
            assert thoughts == ((thought or "") if shows_reasoning else "")
        assert [(name, arguments) for _, name, arguments in made] == calls_of(message)
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        entries = [e for c in own if c["logprobs"] for e in c["logprobs"]["content"]]
        assert entries == choice["logprobs"]["content"]
        ids = [i for c in own for i in c.get("token_ids", [])]
        assert ids == choice["token_ids"]
        sent = b""  # tokens of text that is held back are held back too
        for chunk in own[1:-1]:
            sent += bytes(b for e in chunk["logprobs"]["content"] for b in e["bytes"])
            delta = chunk["delta"]
            assert (delta.get("content") or delta.get("reasoning") or "").encode() in sent


@each(
    ("text", "engine_says", "call_reason", "expected"),
    [
        ("Hello!", "stop", "tool_calls", "stop"),
        ("Hello!", "length", "tool_calls", "length"),
        (CALL, "stop", "tool_calls", "tool_calls"),
        (CALL, "stop", "stop", "stop"),
        (CALL, "length", "tool_calls", "length"),
        (CALL, "length", "stop", "length"),
        (CALL[:40], "length", "tool_calls", "length"),
        (f"<think>{CALL}</think>Hello!", "stop", "tool_calls", "stop"),
    ],
)
def test_finish_reasons(
    make, asked, generate, stream, whole, text, engine_says, call_reason, expected
):
    wanted = {"call_finish_reason": call_reason}
    [choice] = whole(text, finish_reason=engine_says, **wanted)["choices"]
    assert choice["finish_reason"] == expected
    outputs = generate("id-0", text, finish_reason=engine_says, logprobs=False)
    chunks = stream(make(asked(), **wanted), [outputs])
    assert chunks[-1]["choices"][0]["finish_reason"] == expected


def test_without_parallel_calls_only_the_first_is_reported(whole):
    message = whole(f"{CALL}\n{PING}", new_parser=functools.partial(new_parser, parallel=False))[
        "choices"
    ][0]["message"]
    assert calls_of(message) == [WEATHER]


def test_hidden_thinking_is_counted(whole):
    body = whole(f"<think>{THOUGHT}</think>Hello!", shows_reasoning=False)
    message = body["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "Hello!", "refusal": None}
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


def test_no_chunk_contains_markup(make, asked, generate, stream):
    text = f"<think>{THOUGHT}</think>Well.\n{CALL}\n{PING}"
    for chunk in stream(make(asked()), [generate("id-0", text, logprobs=False)]):
        assert "tool_call>" not in json.dumps(chunk)
        assert "think>" not in json.dumps(chunk)


def test_arguments_are_streamed(make, asked, generate, stream):
    chunks = stream(make(asked()), [generate("id-0", CALL, logprobs=False)])
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert sum("tool_calls" in delta for delta in deltas) > 4


def test_without_tools_the_role_chunk_has_empty_content(make, asked, generate, stream):
    chunks = stream(make(asked(), new_parser=None), [generate("id-0", "x", logprobs=False)])
    assert chunks[0]["choices"][0]["delta"]["content"] == ""


def test_a_stream_that_fails_does_not_show_partial_markup(make, asked, generate):
    renderer = make(asked())
    data = renderer.begin()
    for output in generate("id-0", "Hi <tool_c", logprobs=False)[:-1]:
        data += renderer.feed(0, output)
    assert b"<tool" not in data
    assert renderer.error("It failed.").endswith(b"data: [DONE]\n\n")
