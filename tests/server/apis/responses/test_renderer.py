"""ResponsesRenderer: events in order, and the same response streamed and whole."""

import msgspec
import pytest

from core.contract.messages import SampledLogprob
from server.generation.answer import HEAVY
from server.rendering.sse import COMMENT
from tests.support.each import each
from tests.support.engines import last, out
from tests.support.responses import checked_response, events_of, without_ids

THOUGHT = "I need, é 🙂, the < weather."
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 🙂"}}\n</tool_call>'
PING = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
OPEN = '<tool_call>\n{"name": "files__open", "arguments": {}}\n</tool_call>'

# text, types of the items
TEXTS = [
    ("Hello, wörld 🙂!", ["message"]),
    ("A < B, <tool", ["message"]),
    (CALL, ["function_call"]),
    (f"Well:\n\n{CALL}\n{PING}", ["message", "function_call", "function_call"]),
    (f"<think>\n{THOUGHT}\n</think>\n\nHello!", ["reasoning", "message"]),
    (f"<think>{THOUGHT}</think>{PING}", ["reasoning", "function_call"]),
    (f"<think>{THOUGHT}", ["reasoning"]),
]
NUM_EVENTS = {"message": 5, "function_call": 3, "reasoning": 5}
"""Events of an item besides its deltas; messages and reasoning have a part."""


def streamed(renderer, outputs):
    data = renderer.begin()
    for output in outputs:
        data += renderer.feed(0, output)
    return events_of(data + renderer.end())


def rebuilt(events):
    """The items that the deltas add up to, and their rules checked."""
    items = []
    for event in events:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] == len(items)
            assert event["item"]["status"] == "in_progress"
            items.append({"id": event["item"]["id"], "text": "", "is_done": False})
        elif kind.endswith(".delta"):
            assert event["item_id"] == items[-1]["id"]
            assert event["output_index"] == len(items) - 1
            assert event["delta"]
            items[-1]["text"] += event["delta"]
        elif kind.endswith((".text.done", "_text.done", "arguments.done")):
            text = event.get("text", event.get("arguments"))
            assert text == items[-1]["text"]
        elif kind == "response.output_item.done":
            assert event["item"]["id"] == items[-1]["id"]
            items[-1]["is_done"] = True
    assert all(item["is_done"] for item in items)
    return items


def text_of(item):
    match item["type"]:
        case "message":
            return item["content"][0]["text"]
        case "function_call":
            return item["arguments"]
        case "reasoning":
            return (item.get("content") or item["summary"])[0]["text"]


@each(("text", "kinds"), TEXTS)
def test_streamed_and_whole_are_the_same(make, generate, split, whole_of, text, kinds):
    outputs = generate(text=text)
    events = streamed(make(), split(outputs))
    renderer = make()
    whole = checked_response(renderer.whole([whole_of(outputs)]))
    final = events[-1]["response"]
    assert without_ids(final) == without_ids(whole)
    assert [item["type"] for item in whole["output"]] == kinds
    assert whole["status"] == "completed"
    assert whole["completed_at"] >= whole["created_at"]


@each(("text", "kinds"), TEXTS)
def test_the_events_add_up_to_the_items(make, generate, split, text, kinds):
    events = streamed(make(), split(generate(text=text)))
    final = events[-1]["response"]
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event["response"]["status"] for event in events[:2]] == ["in_progress"] * 2
    assert events[-1]["type"] == "response.completed"
    items = rebuilt(events)
    assert [item["id"] for item in items] == [item["id"] for item in final["output"]]
    assert [item["text"] for item in items] == [text_of(item) for item in final["output"]]
    others = [event for event in events if not event["type"].endswith(".delta")]
    assert len(others) == 3 + sum(NUM_EVENTS[kind] for kind in kinds)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == final["output"]


def test_plain_text_is_streamed_as_by_its_events(make, generate, split, whole_of):
    """Without tools and log-probabilities, frames are filled instead of encoded."""
    for text in ('Hé, \u2028 the 🙂 "fox"!', f"<think>{THOUGHT}</think>\n\nHello, you!"):
        outputs = generate(text=text)
        renderer = make(has_tools=False)
        events = streamed(renderer, split(outputs))
        final = events[-1]["response"]
        assert [item["text"] for item in rebuilt(events)] == [
            text_of(item) for item in final["output"]
        ]
        whole = checked_response(make(has_tools=False).whole([whole_of(outputs)]))
        assert without_ids(final) == without_ids(whole)
        assert all(
            event["logprobs"] == []
            for event in events
            if event["type"] == "response.output_text.delta"
        )


def test_an_empty_answer_is_an_empty_message(make):
    end = out(text="", finish_reason="stop", num_prompt_tokens=5, num_output_tokens=1)
    events = streamed(make(has_tools=False), [end])
    [item] = events[-1]["response"]["output"]
    assert item["content"] == [
        {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    ]
    assert [item["id"] for item in rebuilt(events)] == [item["id"]]


@each("text", ["Hello", CALL[:-20], f"<think>{THOUGHT}"])
def test_a_cut_answer_is_incomplete(make, generate, whole_of, text):
    outputs = generate(text=text, finish_reason="length")
    events = streamed(make(), outputs)
    final = events[-1]["response"]
    assert events[-1]["type"] == "response.incomplete"
    assert final["status"] == final["output"][-1]["status"] == "incomplete"
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}
    assert final["completed_at"] is None
    whole = checked_response(make().whole([whole_of(outputs)]))
    assert without_ids(whole) == without_ids(final)


def test_only_the_last_item_of_a_cut_answer_is_incomplete(make, generate):
    events = streamed(make(), generate(text=f"Well: {PING[:-14]}", finish_reason="length"))
    statuses = [item["status"] for item in events[-1]["response"]["output"]]
    assert statuses == ["completed", "incomplete"]


def test_usage(make, generate, whole_of):
    text = f"<think>{THOUGHT}</think>Hello"
    outputs = generate(text=text)
    usage = checked_response(make().whole([whole_of(outputs)]))["usage"]
    assert usage["input_tokens"] == 5
    assert usage["input_tokens_details"] == {"cached_tokens": 2, "cache_write_tokens": 0}
    assert usage["output_tokens"] == len(outputs)
    assert usage["output_tokens_details"] == {"reasoning_tokens": outputs[-1].num_thinking_tokens}
    assert outputs[-1].num_thinking_tokens > 3
    assert usage["total_tokens"] == 5 + len(outputs)


class TestReasoning:
    TEXT = f"<think>{THOUGHT}</think>Hello"

    def reasoning(self, make, generate, **options):
        events = streamed(make(**options), generate(text=self.TEXT))
        rebuilt(events)
        return events, events[-1]["response"]["output"][0]

    def test_its_text_is_content(self, make, generate):
        events, item = self.reasoning(make, generate)
        assert item["summary"] == []
        assert item["content"] == [{"type": "reasoning_text", "text": THOUGHT}]
        assert "encrypted_content" not in item
        assert "response.reasoning_text.delta" in {event["type"] for event in events}

    def test_a_summary_has_the_text_instead(self, make, generate):
        events, item = self.reasoning(make, generate, reasoning={"summary": "auto"})
        assert item["summary"] == [{"type": "summary_text", "text": THOUGHT}]
        assert "content" not in item
        kinds = {event["type"] for event in events}
        assert "response.reasoning_summary_text.delta" in kinds
        assert "response.reasoning_text.delta" not in kinds

    def test_encrypted_content(self, make, generate):
        _, item = self.reasoning(make, generate, include=["reasoning.encrypted_content"])
        assert item["encrypted_content"].isascii()


def test_a_function_of_a_namespace_has_its_own_name(make, generate):
    names = {"files__open": ("files", "open")}
    events = streamed(make(names=names), generate(text=OPEN))
    [call] = events[-1]["response"]["output"]
    assert (call["namespace"], call["name"], call["arguments"]) == ("files", "open", "{}")
    assert (
        "namespace"
        not in streamed(make(names=names), generate(text=PING))[-1]["response"]["output"][0]
    )


def with_end_token(output):
    """The last output, with an end token besides its own."""
    end = SampledLogprob(2, -0.1, (), 5)
    return msgspec.structs.replace(output, logprobs=(*output.logprobs, end))


class TestLogprobs:
    def test_they_belong_to_the_text(self, make, generate, split, tokenizer):
        text = f"<think>{THOUGHT}</think>Hello there"
        outputs = generate(text=text, logprobs=True)
        events = streamed(make(num_top=2), split(outputs))
        [message] = [i for i in events[-1]["response"]["output"] if i["type"] == "message"]
        entries = message["content"][0]["logprobs"]
        assert "".join(entry["token"] for entry in entries) == "Hello there"
        assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
        deltas = [e for e in events if e["type"] == "response.output_text.delta"]
        assert [entry for event in deltas for entry in event["logprobs"]] == entries
        done = [e for e in events if e["type"] == "response.output_text.done"]
        assert done[0]["logprobs"] == entries

    def test_those_of_calls_belong_to_no_text(self, make, generate, split, whole_of):
        outputs = generate(text=f"Well, so:\n\n{PING}\nand so", logprobs=True)
        events = streamed(make(num_top=0), split(outputs))
        whole = checked_response(make(num_top=0).whole([whole_of(outputs)]))
        for response in (events[-1]["response"], whole):
            before, _, after = response["output"]
            assert before["content"][0]["text"] == "Well, so:"
            tokens = [entry["token"] for entry in before["content"][0]["logprobs"]]
            assert "".join(tokens) == "Well, so:"
            assert after["content"][0]["logprobs"] == []
        deltas = [e for e in events if e["type"] == "response.output_text.delta"]
        sent = [entry for event in deltas for entry in event["logprobs"]]
        assert sent == whole["output"][0]["content"][0]["logprobs"]

    def test_the_end_token_is_the_messages(self, make, generate):
        *outputs, end = generate(text="Hello", logprobs=True)
        entries = with_end_token(end)
        events = streamed(make(num_top=0, has_tools=False), [*outputs, entries])
        [message] = events[-1]["response"]["output"]
        assert len(message["content"][0]["logprobs"]) == len(outputs) + 2

    def test_without_a_wish_the_lists_are_empty(self, make, generate):
        events = streamed(make(), generate(text="Hello"))
        assert {len(e["logprobs"]) for e in events if "logprobs" in e} == {0}


class TestFailure:
    def test_a_failed_response(self, make, generate):
        renderer = make()
        outputs = generate(text=f"Well: {PING} and {PING}")
        data = renderer.begin()
        for output in outputs[:-20]:
            data += renderer.feed(0, output)
        events = events_of(data + renderer.error("The engine failed."))
        assert events[-1]["type"] == "response.failed"
        response = events[-1]["response"]
        assert response["status"] == "failed"
        assert response["error"] == {"code": "server_error", "message": "The engine failed."}
        assert response["output"][0]["type"] == "message"
        assert renderer.kept == []

    @each(
        ("text", "kind"),
        [
            ("Hello, you!", "message"),
            (CALL[:-30], "function_call"),
            (f"<think>{THOUGHT}", "reasoning"),
        ],
    )
    @pytest.mark.parametrize("has_tools", [False, True])
    def test_what_was_streamed_stays(self, make, generate, text, kind, has_tools):
        renderer = make(has_tools=has_tools)
        outputs = generate(text=text)[:-1]
        data = renderer.begin()
        for output in outputs:
            data += renderer.feed(0, output)
        data += renderer.feed(0, out(error="It broke.", num_prompt_tokens=5))
        events = events_of(data + renderer.error("It broke."))
        [item] = events[-1]["response"]["output"]
        assert item["type"] == (kind if has_tools or kind == "reasoning" else "message")
        assert item["status"] == "incomplete"
        assert [text_of(item)] == [found["text"] for found in rebuilt(events)]
        assert text_of(item)
        usage = events[-1]["response"]["usage"]
        assert usage["output_tokens"] == outputs[-1].num_output_tokens > 2

    def test_before_any_item_there_is_none(self, make):
        renderer = make()
        events = events_of(renderer.begin() + renderer.error("It broke."))
        assert events[-1]["response"]["output"] == []

    def test_only_ended_responses_are_kept(self, make, generate, whole_of):
        for finish_reason in ("stop", "length"):
            renderer = make()
            outputs = generate(text="Hello", finish_reason=finish_reason)
            streamed(renderer, outputs)
            assert len(renderer.kept) == 1
            renderer = make()
            renderer.whole([whole_of(outputs)])
            assert len(renderer.kept) == 1


def test_it_is_kept_alive_by_comments(make):
    assert make().keep_alive == COMMENT


def test_the_end_weighs_what_all_outputs_do(make, generate):
    renderer = make(num_top=2)
    renderer.begin()
    *outputs, end = generate(text="Hello there, how are you?", logprobs=True)
    weights = []
    for output in outputs:
        weights.append(renderer.weight(0, output))
        renderer.feed(0, output)
    assert renderer.weight(0, outputs[-1]) == weights[-1]
    assert renderer.weight(0, end) >= sum(weights) > 50


def test_the_beginning_and_the_end_weigh_what_they_repeat(make):
    tools = [{"type": "function", "name": f"f{i}", "description": "x" * 10**6} for i in range(5)]
    renderer = make(tools=tools)
    assert renderer.weight(0, out(text="x")) > HEAVY
    renderer.begin()
    assert renderer.weight(0, out(text="x")) < 10
    assert renderer.weight(0, last(text="x")) > HEAVY


@pytest.mark.parametrize("text", ["", "a" * 1000])
def test_the_weight_grows_with_the_text(make, text):
    assert make().weight(0, out(text=text)) >= len(text) // 8
