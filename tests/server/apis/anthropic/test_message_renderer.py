"""MessageRenderer: the blocks of a message, the same streamed and whole, and why it ended."""

import functools
import json

import msgspec
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from core.contract.errors import (
    DeadlineExceeded,
    GenerationFailed,
    InvalidRequest,
    Unavailable,
)
from core.contract.messages import SampledLogprob
from core.contract.params import Thinking
from schemas.tools import FunctionDefinition
from server.apis.anthropic.renderer import MessageRenderer
from server.apis.anthropic.thinking import SHOWN, signature_of
from server.parsers.tool import TOOL_PARSERS
from server.rendering.base import ChatOptions
from tests.support.each import each
from tests.support.engines import out

TOOLS = [FunctionDefinition(name="get_weather"), FunctionDefinition(name="ping")]
THOUGHT = "I need, é 🙂\u2028, the < weather."
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 🙂"}}\n</tool_call>'
PING = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
CUT = '<tool_call>\n{"name": "ping", "arguments": {"a'
EVENT = TypeAdapter(RawMessageStreamEvent)


def text(content):
    return {"type": "text", "text": content, "citations": None}


def thinking(content, signature=SHOWN):
    return {"type": "thinking", "thinking": content, "signature": signature}


def call(name, arguments):
    return {"type": "tool_use", "name": name, "input": arguments, "caller": {"type": "direct"}}


WEATHER = call("get_weather", {"city": "Zürich 🙂"})

TEXTS = [
    ("Hello!\u2028 🙂", [text("Hello!\u2028 🙂")]),
    (CALL, [WEATHER]),
    (f"Well:\n\n{CALL}\n", [text("Well:"), WEATHER]),
    (f"{CALL}\n{PING}", [WEATHER, call("ping", {})]),
    (f"Well:\n{PING}\nDone.", [text("Well:"), call("ping", {}), text("\n\nDone.")]),
    (f"<think>\n{THOUGHT}\n</think>\n\nHello!", [thinking(THOUGHT), text("Hello!")]),
    (f"<think>{THOUGHT}</think>{PING}", [thinking(THOUGHT), call("ping", {})]),
    (f"<think>{THOUGHT}", [thinking(THOUGHT)]),
]


@pytest.fixture
def generate(generate):
    """As ``generate``, of a model that thinks."""
    marks = Thinking(begin="<think>", end="</think>", end_token_ids=(), is_separate=True)
    return functools.partial(generate, thinking=marks, logprobs=False)


@pytest.fixture
def head(head):
    return msgspec.structs.replace(head, id="msg_1")


@pytest.fixture
def make(envelope, asked):
    def make(*, has_tools=True, **form):
        common, _ = envelope(asked(), num_choices=1)
        parser = functools.partial(TOOL_PARSERS["hermes"], TOOLS, parallel=True)
        options = ChatOptions(new_parser=parser if has_tools else None)
        return MessageRenderer(common, options, **{"max_tokens": 500} | form)

    return make


def events_of(data):
    """The events of a stream, each named by its type and valid for the SDK."""
    *events, nothing = data.decode().split("\n\n")
    assert nothing == ""
    found = []
    for event in events:
        name, line = event.split("\n")
        assert line.startswith("data: ")
        decoded = json.loads(line.removeprefix("data: "))
        assert name == f"event: {decoded['type']}"
        if decoded["type"] != "ping":
            EVENT.validate_python(decoded)
        found.append(decoded)
    return found


def message_of(events):
    """The message that the events add up to. Checks their order."""
    start, ping, *inner, end, stop = events
    assert (start["type"], ping, stop) == (
        "message_start",
        {"type": "ping"},
        {"type": "message_stop"},
    )
    message, blocks, json_text, is_open = start["message"], [], "", False
    assert (message["content"], message["stop_reason"]) == ([], None)
    assert message["usage"]["output_tokens"] == 0
    for event in inner:
        match event["type"]:
            case "content_block_start":
                assert not is_open
                assert event["index"] == len(blocks)
                blocks.append(dict(event["content_block"]))
                is_open, json_text = True, ""
            case "content_block_delta":
                assert is_open
                assert event["index"] == len(blocks) - 1
                delta = dict(event["delta"])
                match delta.pop("type"):
                    case "input_json_delta":
                        json_text += delta["partial_json"]
                    case "signature_delta":
                        blocks[-1]["signature"] += delta["signature"]
                    case _:
                        [(key, more)] = delta.items()
                        blocks[-1][key] += more
            case "content_block_stop":
                assert is_open
                if json_text:
                    blocks[-1]["input"] = json.loads(json_text)
                is_open = False
            case other:
                raise AssertionError(other)
    assert not is_open
    assert end["type"] == "message_delta"
    return message | {"content": blocks, **end["delta"], "usage": end["usage"]}


def streamed(renderer, outputs):
    data = renderer.begin() + b"".join([renderer.feed(0, output) for output in outputs])
    return message_of(events_of(data + renderer.end()))


def whole(renderer, output):
    message = json.loads(renderer.whole([output]))
    Message.model_validate(message, strict=True)
    return message


def without_ids(message):
    """The message without its id and those of its calls, which have Anthropic's form."""
    assert message.pop("id") == "msg_1"
    for block in message["content"]:
        if block["type"] == "tool_use":
            call_id = block.pop("id")
            assert call_id.startswith("toolu_")
            assert len(call_id) == len("toolu_") + 24
    return message


@each("answer, blocks", TEXTS)
def test_blocks_of_a_stream_and_of_a_whole_message(make, generate, split, whole_of, answer, blocks):
    outputs = generate(text=answer)
    one = without_ids(whole(make(), whole_of(outputs)))
    assert one["content"] == blocks
    assert without_ids(streamed(make(), split(outputs))) == one


@each("answer, blocks", [TEXTS[0], TEXTS[5]])
def test_without_tools_templates_make_the_same_blocks(
    make, generate, split, whole_of, answer, blocks
):
    outputs = generate(text=answer)
    one = without_ids(whole(make(has_tools=False), whole_of(outputs)))
    assert one["content"] == blocks
    assert without_ids(streamed(make(has_tools=False), split(outputs))) == one
    assert without_ids(streamed(make(has_tools=False), outputs)) == one


@each("answer, blocks", [TEXTS[5], TEXTS[7]])
def test_omitted_thinking_is_in_its_signature(make, generate, split, whole_of, answer, blocks):
    outputs = generate(text=answer)
    one = without_ids(whole(make(omits_thinking=True), whole_of(outputs)))
    assert one["content"] == [thinking("", signature_of(THOUGHT)), *blocks[1:]]
    assert without_ids(streamed(make(omits_thinking=True), split(outputs))) == one


def test_a_template_makes_the_same_events(make, generate):
    pieces = [make(has_tools=False).feed(0, output) for output in generate(text='a\u2028"b')]
    assert all(b"\xe2\x80\xa8" not in piece for piece in pieces)


@pytest.mark.parametrize(
    ("answer", "fields", "reason", "sequence"),
    [
        ("Hello!", {}, "end_turn", None),
        ("Hello!", {"stop": "x"}, "stop_sequence", "x"),
        ("Hello!", {"stop": 7}, "end_turn", None),
        ("Hello!", {"finish_reason": "length"}, "max_tokens", None),
        (PING, {}, "tool_use", None),
        (PING, {"finish_reason": "length"}, "max_tokens", None),
    ],
)
def test_stop_reasons(make, generate, whole_of, answer, fields, reason, sequence):
    outputs = generate(text=answer, **fields)
    form = {"max_tokens": outputs[-1].num_output_tokens}
    for message in (whole(make(**form), whole_of(outputs)), streamed(make(**form), outputs)):
        assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)
        assert message["stop_details"] is None


def test_a_full_context_is_told_apart_from_the_limit(make, generate, whole_of):
    outputs = generate(text="Hello!", finish_reason="length")
    message = whole(make(max_tokens=outputs[-1].num_output_tokens + 1), whole_of(outputs))
    assert message["stop_reason"] == "model_context_window_exceeded"


def test_usage_parts_the_prompt(make, generate, whole_of):
    outputs = generate(text=f"<think>{THOUGHT}</think>Hello!")
    for message in (whole(make(), whole_of(outputs)), streamed(make(), outputs)):
        usage = message["usage"]
        assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (3, 2)
        assert usage["output_tokens"] == len(outputs)
        assert 0 < usage["output_tokens_details"]["thinking_tokens"] < len(outputs)
        assert usage["cache_creation_input_tokens"] == 0


def test_the_first_event_has_the_counts_of_the_prompt(make, generate):
    renderer = make()
    start, *_ = events_of(renderer.begin() + renderer.feed(0, generate(text="Hello!")[0]))
    usage = start["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (3, 2)


def test_a_call_that_is_cut_has_no_input(make, generate, whole_of):
    outputs = generate(text=CUT, finish_reason="length")
    [block] = without_ids(whole(make(), whole_of(outputs)))["content"]
    assert block == call("ping", {})


def test_an_error_ends_the_stream(make):
    [event] = make().error("no").split(b"\n\n")[:-1]
    name, data = event.split(b"\n")
    assert name == b"event: error"
    error = msgspec.json.decode(data.removeprefix(b"data: "))
    assert error == {
        "type": "error",
        "error": {"type": "api_error", "message": "no"},
        "request_id": None,
    }


@pytest.mark.parametrize(
    ("cause", "type_"),
    [
        (DeadlineExceeded("no"), "timeout_error"),
        (Unavailable("no"), "overloaded_error"),
        (InvalidRequest("no"), "invalid_request_error"),
        (GenerationFailed("no"), "api_error"),
    ],
)
def test_the_cause_of_an_error_is_its_type(make, cause, type_):
    _, data = make().error("no", cause).split(b"\ndata: ")
    assert msgspec.json.decode(data)["error"] == {"type": type_, "message": "no"}


def test_keep_alive_is_a_ping(make):
    assert events_of(make().keep_alive) == [{"type": "ping"}]


def test_the_weight_is_that_of_the_output(make):
    entry = SampledLogprob(1, -0.5)
    assert make().weight(0, out(text="x" * 80, logprobs=(entry,))) == 12
