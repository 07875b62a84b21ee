"""FunctionRenderer: calls in the older field."""

import msgspec
import pytest

from schemas.tools import FunctionDefinition
from server.apis.openai.chat import FunctionRenderer
from server.parsers.tool import TOOL_PARSERS
from server.rendering.base import ChatOptions

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "é 🙂"}}\n</tool_call>'
FUNCTION_CALL = {"name": "f", "arguments": '{"a": "é 🙂"}'}


@pytest.fixture
def make(envelope):
    def make(requests, **wanted):
        tools = [FunctionDefinition(name="f")]
        wanted = {"new_parser": lambda: TOOL_PARSERS["hermes"](tools, parallel=False)} | wanted
        common, options = envelope(requests, num_choices=len(requests), **wanted)
        return FunctionRenderer(common, ChatOptions(**options))

    return make


@pytest.mark.parametrize(
    ("text", "finish", "call_reason", "content", "call", "reason"),
    [
        (CALL, "stop", "tool_calls", None, FUNCTION_CALL, "function_call"),
        (CALL, "stop", "stop", None, FUNCTION_CALL, "stop"),
        (CALL, "length", "tool_calls", None, FUNCTION_CALL, "length"),
        (f"Well: {CALL}{CALL}", "stop", "tool_calls", "Well:", FUNCTION_CALL, "function_call"),
        ("Hello!", "stop", "tool_calls", "Hello!", None, "stop"),
    ],
)
def test_whole_and_streamed(
    make, asked, generate, whole_of, stream, text, finish, call_reason, content, call, reason
):
    outputs = generate("id-0", text, finish_reason=finish, logprobs=False)
    options = {"call_finish_reason": call_reason}
    whole = msgspec.json.decode(make(asked(), **options).whole([whole_of(outputs)]))
    [choice] = whole["choices"]
    assert choice["message"].get("function_call") == call
    assert "tool_calls" not in choice["message"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (content, reason)

    deltas, reasons = [], []
    for chunk in stream(make(asked(), **options), [outputs]):
        deltas += [choice["delta"] for choice in chunk["choices"]]
        reasons += [choice["finish_reason"] for choice in chunk["choices"]]
    assert all("tool_calls" not in delta for delta in deltas)
    assert reasons[-1] == reason
    pieces = [delta["function_call"] for delta in deltas if "function_call" in delta]
    assert [piece["name"] for piece in pieces if "name" in piece] == (
        [call["name"]] if call else []
    )
    assert "".join(piece["arguments"] for piece in pieces) == (call["arguments"] if call else "")
    assert "".join(delta.get("content") or "" for delta in deltas) == (content or "")
