"""Random texts of markup and fragments: the properties hold for any text that a model writes."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.parsers.tool import TOOL_PARSERS
from tests.server.parsers import properties
from tests.support.each import each

COMMON = ['{"name": ', '"ping"', '"nope"', "ping", "nope", ', "arguments": ', "{}", "}", "{", '"']
COMMON += ["\n", " ", "a", ",", '{"a": 1', "😀", "\\", ":", "[", "]"]
OWN = {
    "hermes": ['{"name": "ping", "arguments": "', r"{\"a\": 1}"],
    "qwen3_coder": ["<function=", ">", "<parameter=a>", "</parameter>", "</function>"],
    "generic": ['{"name": "ping", "arguments": {', '{"name": "ping", "x": '],
    "llama3_json": ['"parameters": ', ";", '{"name": "ping", "parameters": {'],
    "mistral": ['[{"name": "ping", "arguments": {'],
    "pythonic": ["[ping(", ")", "a=1", "=", "'", '"""', "{'a': "],
    "deepseek": ["function", "```json\n", "```"],
}


@pytest.mark.parametrize("family", TOOL_PARSERS)
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_any_text_is_parsed_alike_however_it_is_cut(family, data):
    fragments = COMMON + 3 * [*OWN.get(family, []), *TOOL_PARSERS[family].markers]
    pieces = data.draw(st.lists(st.sampled_from(fragments), max_size=14))
    text = "".join(pieces)

    def make():
        return properties.calls_parser(family)

    whole = properties.parse(make, text)
    assert properties.parse(make, *text) == whole
    assert properties.parse(make, *pieces) == whole
    if not whole.calls:
        assert whole.content == text
    for call in whole.calls[:-1]:
        if call.arguments.endswith("}") and not whole.content:
            assert isinstance(json.loads(call.arguments), dict)


@each(
    ("family", "unit"),
    [
        ("hermes", "<tool_call>"),
        ("hermes", '<tool_call>{"name": "ping", "arguments": {"a": "'),
        ("hermes", '{"<tool_call>{":"'),
        ("generic", "<tool_call>{"),
        ("generic", '{"name": "ping", "arguments": {"a": '),
        ("llama3_json", '{"name": '),
        ("llama3_json", '{"name": "ping", "parameters": {"a": '),
        ("mistral", "[TOOL_CALLS]["),
        ("pythonic", "[ping(a="),
        ("pythonic", "[ping(a='"),
        ("deepseek", "<｜tool▁call▁begin｜>"),  # noqa: RUF001
        ("qwen3_coder", "<tool_call><function=ping><parameter=a>"),
        ("qwen3_coder", "\n"),
    ],
)
def test_time_is_linear_in_a_repeated_text(family, unit):
    text = unit * (100_000 // len(unit))
    start = time.process_time()
    properties.parse(lambda: properties.calls_parser(family), text)
    assert time.process_time() - start < 2
