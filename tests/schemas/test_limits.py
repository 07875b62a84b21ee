"""Static ranges: each limit is accepted, values beyond it are refused with the field's path."""

import msgspec
import pytest

from schemas.completions import CompletionRequest
from tests.support.each import each

BOTH = [
    ("temperature", [0, 0.5, 2], [-0.1, 2.1]),
    ("top_p", [0, 1], [-0.1, 1.1]),
    ("n", [1, 128], [0, -1, 129, 10**30]),
    ("seed", [-(2**63), -1, 0, 2**63 - 1], [-(2**63) - 1, 2**63]),
    ("frequency_penalty", [-2, 2], [-2.1, 2.1]),
    ("presence_penalty", [-2, 2], [-2.1, 2.1]),
    ("min_p", [0, 1], [-0.1, 1.1]),
    ("repetition_penalty", [0.001, 1, 1000], [0, -1, 1e-300, 1001]),
    ("top_k", [-1, 0, 2**31 - 1], [-2, 2**31]),
    ("min_tokens", [0, 2**31 - 1], [-1, 2**31]),
    ("stream_interval", [1], [0, -1]),
    ("truncate_prompt_tokens", [-1, 0, 1], [-2]),
    ("thinking_token_budget", [-1, 0], [-2]),
    ("prompt_logprobs", [-1, 0, 20], [-2, 21]),
    ("priority", [-1000, 0, 1000], [-1001, 1001, 2**31]),
    ("stop", ["", "x", "x" * 1024, [], ["x"] * 64], ["x" * 1025, ["x"] * 65]),
    ("logit_bias", [{}, {"1": -100, "2": 100, "3": 0.5}], [{str(i): 1 for i in range(1025)}]),
    ("stop_token_ids", [[], [0], [2] * 128], [[2] * 129]),
    ("logprob_token_ids", [[], [0]], [[2] * 129]),
    ("allowed_token_ids", [[0], list(range(1000))], [[], [0] * (2**20 + 1)]),
    ("bad_words", [[], ["x"] * 128], [["x"] * 129]),
    ("cache_salt", ["x", "x" * 128], ["", "x" * 129, "a@b", "a/b", "a\\b", "a\0b"]),
    ("truncation_side", ["left", "right"], ["middle"]),
    ("request_id", ["x" * 128], ["", "x" * 129]),
    ("rid", ["x" * 128], ["", "x" * 129]),
]
CHAT = [
    ("max_tokens", [-1, 1, 2**62], [-2, 2**63]),
    ("max_completion_tokens", [-1, 1], [-2, 2**63]),
    ("top_logprobs", [0, 20], [-1, 21]),
    (
        "messages",
        [[{"role": "user", "content": ""}] * 4096],
        [[], [{"role": "user", "content": ""}] * 4097],
    ),
    (
        "tools",
        [[], [{"type": "function", "function": {"name": "f"}}] * 1024],
        [[{"type": "function", "function": {"name": "f"}}] * 1025],
    ),
    ("functions", [[{"name": "f"}] * 1024], [[{"name": "f"}] * 1025]),
    (
        "metadata",
        [{}, {"a": {"b": [1, None]}}, {"k" * 65: "x" * 513}, {str(i): i for i in range(1024)}],
        [{str(i): "" for i in range(1025)}, "x", []],
    ),
    ("reasoning_effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"], ["huge"]),
    ("verbosity", ["low", "medium", "high"], ["loud"]),
    ("service_tier", ["auto", "default", "flex", "scale", "priority", "fast"], ["gold"]),
    ("prompt_cache_retention", ["in_memory", "24h"], ["1h"]),
    ("modalities", [["text"], ["text", "audio"]], []),
    ("tool_choice", ["none", "auto", "required"], ["sometimes"]),
    ("function_call", ["none", "auto", {"name": "f"}], ["required"]),
]
COMPLETION = [
    ("max_tokens", [-1, 0, 1], [-2]),
    ("logprobs", [0, 20], [-1, 21]),
    ("best_of", [0, 20], [-1, 21]),
]
# Errors inside a value and their paths.
INSIDE = [
    ("stop", ["ok", ""], "$.stop[1]"),
    ("stop", ["x" * 1025], "$.stop[0]"),
    ("stop_token_ids", [1, -1], "$.stop_token_ids[1]"),
    ("allowed_token_ids", [2**31], "$.allowed_token_ids[0]"),
    ("bad_words", [""], "$.bad_words[0]"),
    ("bad_words", ["x" * 257], "$.bad_words[0]"),
    ("logit_bias", {"1": 100.1}, "$.logit_bias[...]"),
    ("logit_bias", {"1": "1"}, "$.logit_bias[...]"),
    ("stream_options", {"include_usage": 1}, "$.stream_options.include_usage"),
]
WRONG_TYPES = [
    ("temperature", ["0", True, [], {}]),
    ("top_p", ["1", False]),
    ("n", ["1", True, 1.5, 1.0]),
    ("seed", ["1", True, 1.5, 1.0]),
    ("max_tokens", ["5", True, 5.5, 5.0]),
    ("top_k", ["1", 1.5]),
    ("stream", [1, 0, "true"]),
    ("stop", [5, {}]),
    ("logit_bias", [[], "x"]),
    ("ignore_eos", [1, "yes"]),
    ("stream_options", [True, []]),
    ("model", [1, []]),
]


def spread(table):
    """One test case per value."""
    return [(field, value) for field, values in table for value in values]


def accepted(table):
    return spread([(field, good) for field, good, _ in table])


def refused(table):
    return spread([(field, bad) for field, _, bad in table])


def check_refused(decode, field, value, path=None):
    with pytest.raises(msgspec.ValidationError) as caught:
        decode(**{field: value})
    assert str(caught.value).endswith(f" - at `{path or '$.' + field}`")


@each(("field", "value"), accepted(BOTH + CHAT))
def test_chat_accepts_the_limit(chat, field, value):
    assert getattr(chat(**{field: value}), field) is not None


@each(("field", "value"), refused(BOTH + CHAT))
def test_chat_refuses_values_beyond_the_limit(chat, field, value):
    check_refused(chat, field, value)


@each(("field", "value"), accepted(BOTH + COMPLETION))
def test_completions_accept_the_limit(completion, field, value):
    assert getattr(completion(**{field: value}), field) == value


@each(("field", "value"), refused(BOTH + COMPLETION))
def test_completions_refuse_values_beyond_the_limit(completion, field, value):
    check_refused(completion, field, value)


@each(("field", "value", "path"), INSIDE)
def test_errors_inside_a_value_name_the_path(chat, completion, field, value, path):
    check_refused(chat, field, value, path)
    check_refused(completion, field, value, path)


@each(("field", "value"), spread(WRONG_TYPES))
def test_wrong_types_are_refused(chat, completion, field, value):
    check_refused(chat, field, value)
    check_refused(completion, field, value)


def test_logprobs_differ_between_the_apis(chat, completion):
    assert chat(logprobs=True).logprobs is True
    check_refused(chat, "logprobs", 1)
    check_refused(completion, "logprobs", True)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e400"])
def test_numbers_are_finite(text):
    body = b'{"temperature":%s}' % text.encode()
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(body, type=CompletionRequest)


@pytest.mark.parametrize("name", ["", "a" * 257, "a b", "a/b", "a\n", "é"])
def test_tool_names_follow_the_pattern(chat, name):
    path = "$.tools[0].function.name"
    check_refused(chat, "tools", [{"type": "function", "function": {"name": name}}], path)


@pytest.mark.parametrize("name", ["a", "a" * 256, "get_weather-2", "A9", "server.tool"])
def test_valid_tool_names_are_accepted(chat, name):
    (tool,) = chat(tools=[{"type": "function", "function": {"name": name}}]).tools
    assert tool.function.name == name
