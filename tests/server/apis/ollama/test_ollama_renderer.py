"""OllamaRenderer: lines of a stream add up to the whole answer."""

import functools
import json

import pytest
from ollama import ChatResponse, GenerateResponse

from core.contract.params import Thinking
from schemas.tools import FunctionDefinition
from server.apis.ollama.renderer import OllamaRenderer, chat_line, encoded_line, generate_line
from server.parsers.tool import TOOL_PARSERS
from server.rendering.base import ChatOptions
from tests.support.each import each

TOOLS = [FunctionDefinition(name="get_weather"), FunctionDefinition(name="ping")]
THOUGHT = "I need, é 🙂, the < weather."
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 🙂"}}\n</tool_call>'
PING = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
CUT = '<tool_call>\n{"name": "ping", "arguments": {"a'
WEATHER = ("get_weather", {"city": "Zürich 🙂"})

# text, thinking, content, calls
TEXTS = [
    ("Hello!\u2028 🙂", "", "Hello!\u2028 🙂", []),
    (CALL, "", "", [WEATHER]),
    (f"Well:\n\n{CALL}\n{PING}", "", "Well:", [WEATHER, ("ping", {})]),
    (f"<think>\n{THOUGHT}\n</think>\n\nHello!", THOUGHT, "Hello!", []),
    (f"<think>{THOUGHT}</think>{PING}", THOUGHT, "", [("ping", {})]),
]


@pytest.fixture
def generate(generate):
    """As ``generate``, of a model that thinks."""
    marks = Thinking(begin="<think>", end="</think>", end_token_ids=(), is_separate=True)
    return functools.partial(generate, thinking=marks)


@pytest.fixture
def make(envelope, asked):
    def make(new_line=chat_line, *, has_tools=True, **wanted):
        common, _ = envelope(asked(), num_choices=1, **wanted)
        parser = functools.partial(TOOL_PARSERS["hermes"], TOOLS, parallel=True)
        options = ChatOptions(new_parser=parser if has_tools else None)
        return OllamaRenderer(common, options, new_line=new_line)

    return make


def lines_of(renderer, outputs):
    data = renderer.begin() + b"".join([renderer.feed(0, output) for output in outputs])
    *lines, nothing = (data + renderer.end()).split(b"\n")
    assert nothing == b""
    return [json.loads(line) for line in lines]


def added(lines):
    """Thinking, content and calls of some lines."""
    messages = [line["message"] for line in lines]
    assert all(message["role"] == "assistant" for message in messages)
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    assert [call["function"]["index"] for call in calls] == list(range(len(calls)))
    return (
        "".join(message.get("thinking", "") for message in messages),
        "".join(message["content"] for message in messages),
        [(call["function"]["name"], call["function"]["arguments"]) for call in calls],
    )


def check_summary(line, outputs):
    assert (line["done"], line["done_reason"]) == (True, "stop")
    assert (line["prompt_eval_count"], line["eval_count"]) == (5, len(outputs))
    parts = line["prompt_eval_duration"], line["load_duration"], line["eval_duration"]
    assert all(part >= 0 for part in parts)
    assert line["total_duration"] == sum(parts) > 0


@each("text, thinking, content, calls", TEXTS)
def test_a_stream_and_a_whole_answer(
    make, generate, split, whole_of, text, thinking, content, calls
):
    outputs = generate(text=text, logprobs=False)
    *lines, last = lines_of(make(), split(outputs))
    assert added(lines) == (thinking, content, calls)
    assert all(line["done"] is False for line in lines)
    assert last["message"] == {"role": "assistant", "content": ""}
    check_summary(last, outputs)
    one = json.loads(make().whole([whole_of(outputs)]))
    assert added([one]) == (thinking, content, calls)
    check_summary(one, outputs)
    for line in (*lines, last, one):
        assert line["model"] == "org/m"
        ChatResponse(**line)


@each("text, thinking, content, calls", [TEXTS[0], TEXTS[3]])
def test_without_tools_templates_make_the_same_text(
    make, generate, split, text, thinking, content, calls
):
    outputs = generate(text=text, logprobs=False)
    for pieces in (outputs, split(outputs)):
        *lines, last = lines_of(make(has_tools=False), pieces)
        assert added(lines) == (thinking, content, calls)
        check_summary(last, outputs)
        for line in lines:
            ChatResponse(**line)


def test_a_generated_text(make, generate, whole_of):
    outputs = generate(text=f"<think>{THOUGHT}</think>Hello!", logprobs=False)
    lines = lines_of(make(generate_line, has_tools=False), outputs)
    assert "".join(line["response"] for line in lines) == "Hello!"
    assert "".join(line.get("thinking", "") for line in lines) == THOUGHT
    one = json.loads(make(generate_line, has_tools=False).whole([whole_of(outputs)]))
    assert (one["response"], one["thinking"]) == ("Hello!", THOUGHT)
    GenerateResponse(**one)


def test_the_limit_of_tokens(make, generate):
    *_, last = lines_of(make(), generate(text="Hello!", logprobs=False, finish_reason="length"))
    assert last["done_reason"] == "length"


def test_a_call_that_is_cut_has_no_arguments(make, generate):
    lines = lines_of(make(), generate(text=CUT, logprobs=False, finish_reason="length"))
    assert added(lines)[2] == [("ping", {})]


def test_logprobs(make, generate, whole_of):
    outputs = generate(text="Hello!")
    lines = lines_of(make(has_tools=False, num_top=2), outputs)
    shown = [entry for line in lines for entry in line.get("logprobs", ())]
    assert len(shown) == len(outputs)
    assert "".join(entry["token"] for entry in shown) == "Hello!"
    assert all(len(entry["top_logprobs"]) == 2 for entry in shown)
    one = json.loads(make(has_tools=False, num_top=2).whole([whole_of(outputs)]))
    assert one["logprobs"] == shown


def test_an_error_is_the_last_line(make):
    assert make().error("no") == b'{"error":"no"}\n'


@pytest.mark.parametrize(
    ("new_line", "kind"), [(chat_line, ChatResponse), (generate_line, GenerateResponse)]
)
def test_lines_without_text(make, new_line, kind):
    silence = json.loads(make(new_line).keep_alive)
    assert silence["done"] is False
    kind(**silence)
    loaded = json.loads(encoded_line(new_line, "m", done=True, done_reason="load"))
    assert (loaded["done"], loaded["done_reason"], loaded["model"]) == (True, "load", "m")
    kind(**loaded)
