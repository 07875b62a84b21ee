import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.parsers import properties
from tests.server.parsers.properties import Case, plain

FAMILY = "hermes"

WELL_FORMED = [
    plain(""),
    plain("Hello, world."),
    plain("  two lines\n\nand blanks \n"),
    plain("a <b> < tool_call> <tool-call> <tool_call <tool_cal"),
    plain("1 < 2 and <t"),
    plain("😀 naïve ✓ <"),
    Case(
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        None,
        [("get_weather", '{"city": "Paris"}')],
    ),
    Case(
        'Let me look. \n\n<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>\n',
        "Let me look.",
        [("ping", "{}")],
    ),
    Case(
        '<tool_call>\n{"name": "ping", "arguments": {"a": [1, -2.5e+3, {"b": [null, true]}]}}'
        '\n</tool_call>\n<tool_call>{"name":"get_weather","arguments":{"city":"Rome"}}</tool_call>',
        None,
        [("ping", '{"a": [1, -2.5e+3, {"b": [null, true]}]}'), ("get_weather", '{"city":"Rome"}')],
    ),
    Case(
        '<tool_call>{"arguments": {"city": "Oslo"}, "name": "get_weather"}</tool_call>',
        None,
        [("get_weather", '{"city": "Oslo"}')],
    ),
    Case(
        '<tool_call>{"id": 12, "name": "ping", "x": {"y": "}"}, "arguments": { }}</tool_call>',
        None,
        [("ping", "{ }")],
    ),
    Case('<tool_call>{"name": "ping"}</tool_call>', None, [("ping", "{}")]),
    Case('<tool_call>{"name": "ping", "arguments": null}</tool_call>', None, [("ping", "{}")]),
    Case('<tool_call>{"name": "ping", "arguments": " "}</tool_call>', None, [("ping", "{}")]),
    Case(
        r'<tool_call>{"name": "ping", "arguments": " {\"a\": \"\\\"\u00e9\ud83d\ude00\"}\n"}'
        "</tool_call>",
        None,
        [("ping", '{"a": "\\"é😀"}')],
    ),
    Case(
        r'<tool_call>{"name": "p\u0069ng", "arguments": {"a": "\"\\ \ud83d\ude00 😀 </tool_call>"}}'
        "</tool_call>",
        None,
        [("ping", r'{"a": "\"\\ \ud83d\ude00 😀 </tool_call>"}')],
    ),
    Case(
        '<tool_call>{"name": "ping", "arguments": {"a": "line\nline\t\x01"}}</tool_call>',
        None,
        [("ping", r'{"a": "line\nline\t\u0001"}')],
    ),
    Case('<tool_call>{"name": "ping", "arguments": {}}', None, [("ping", "{}")]),
    Case(
        '<tool_call>{"name": "ping"}<tool_call>{"name": "ping", "arguments": {}}</tool_call>',
        None,
        [("ping", "{}"), ("ping", "{}")],
    ),
    Case(
        'a\n<tool_call>{"name": "ping"}</tool_call>\n b \n<tool_call>{"name": "ping"}</tool_call>',
        "a\n\n b",
        [("ping", "{}"), ("ping", "{}")],
    ),
    Case('<tool_call>{"name": "ping"}</tool_call>\n\nDone.', "Done.", [("ping", "{}")]),
]

MALFORMED = [
    plain('<tool_call>\n{"name": "nope", "arguments": {"a": "<tool_call>"}}\n</tool_call>'),
    plain('<tool_call>{"arguments": {"a": 1}, "name": "nope"}</tool_call> more'),
    plain("<tool_call>get_weather</tool_call>"),
    plain("<tool_call></tool_call>"),
    plain("<tool_call>{}</tool_call>"),
    plain('<tool_call>{"arguments": {}}</tool_call>'),
    plain('<tool_call>{"name": 5, "arguments": {}}</tool_call>'),
    plain('<tool_call>{"name": "ping", "arguments": 5}</tool_call>'),
    plain('<tool_call>{"name": "ping", "arguments": [1]}</tool_call>'),
    plain('<tool_call>{"name": "ping", "arguments": nil}</tool_call>'),
    plain('<tool_call>{"name": "ping", "arguments": "words"}</tool_call>'),
    plain('<tool_call>{"name": "ping", "name": "ping", "arguments": {}}</tool_call>'),
    plain(r'<tool_call>{"name": "p\ud83dng"}</tool_call>'),
    plain(r'<tool_call>{"name": "p\ud83d\u0041"}</tool_call>'),
    plain(r'<tool_call>{"name": "p\udc00"}</tool_call>'),
    plain(r'<tool_call>{"name": "\x"}</tool_call>'),
    plain(r'<tool_call>{"name": "\u12g4"}</tool_call>'),
    plain("<tool_call>{'name': 'ping'}</tool_call>"),
    plain('<tool_call>{"name": "ping", "other": 01, "arguments": {}}</tool_call>'),
    plain('\n<tool_call>{"name": "ping" "arguments": {}}</tool_call>\n'),
    Case('<tool_call><tool_call>{"name": "ping"}</tool_call>', "<tool_call>", [("ping", "{}")]),
    Case(
        'x <tool_call>{"name": "nope"}</tool_call> <tool_call>{"name": "ping"}</tool_call>',
        'x <tool_call>{"name": "nope"}</tool_call>',
        [("ping", "{}")],
    ),
    # Reported calls that are malformed: the arguments end, the rest is content.
    Case(
        '<tool_call>{"name": "ping", "arguments": {"a": 1, b}}</tool_call>',
        "b}}</tool_call>",
        [("ping", '{"a": 1, ')],
    ),
    Case(
        '<tool_call>{"name": "ping", "arguments": {"a": 1}, "arguments": {}}</tool_call>',
        ', "arguments": {}}</tool_call>',
        [("ping", '{"a": 1}')],
    ),
    Case(
        r'<tool_call>{"name": "ping", "arguments": "{\"a\": 1} ?"}</tool_call>',
        '?"}</tool_call>',
        [("ping", '{"a": 1}')],
    ),
    Case(
        r'<tool_call>{"name": "ping", "arguments": "{\"a\": \u0020\u0041}"}</tool_call>',
        r'\u0041}"}</tool_call>',
        [("ping", '{"a":  ')],
    ),
    Case(
        'a <tool_call>{"name": "ping", "arguments": "{}\n:"}',
        'a \n:"}',
        [("ping", "{}")],
    ),
    Case(
        r'<tool_call>{"name": "ping", "arguments": "{}\n\u003a"}',
        r'\n\u003a"}',
        [("ping", "{}")],
    ),
    Case(
        r'<tool_call>{"name": "ping", "arguments": "{\"a\": 1"}</tool_call>',
        '"}</tool_call>',
        [("ping", '{"a": 1')],
    ),
    # Texts that are cut short.
    Case('<tool_call>{"name": "ping", "arguments": {"a": "b', None, [("ping", '{"a": "b')]),
    Case('<tool_call>{"name": "ping", "arguments": {}}</tool', None, [("ping", "{}")]),
    plain('<tool_call>{"name": "ping", "argum'),
]


@pytest.mark.parametrize("case", [*WELL_FORMED, *MALFORMED], ids=lambda case: case.text)
def test_a_text_is_parsed_alike_however_it_is_cut(case):
    properties.check_case(FAMILY, case)


@pytest.mark.parametrize("case", WELL_FORMED, ids=lambda case: case.text)
def test_markup_is_never_content(case):
    properties.check_leaks(FAMILY, case)


def test_a_call_begins_with_its_arguments_which_are_streamed():
    parser = properties.calls_parser(FAMILY)
    assert parser.feed('<tool_call>{"name": "ping", "arguments": ') == []
    begin, first = parser.feed('{"a"')
    assert (begin.index, begin.name, first.text) == (0, "ping", '{"a"')
    assert [delta.text for delta in parser.feed(': "b')] == [': "b']
    assert [delta.text for delta in parser.feed("c")] == ["c"]


def test_without_parallel_only_the_first_call_is_reported():
    call = '<tool_call>{"name": "ping", "arguments": {"n": %d}}</tool_call>'
    message = properties.parse(
        lambda: properties.calls_parser(FAMILY, parallel=False), "a ", call % 1, call % 2, " b"
    )
    assert [call.arguments for call in message.calls] == ['{"n": 1}']
    assert message.content == "a  b"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
json_objects = st.dictionaries(st.text(max_size=4), json_values, max_size=3)


@given(
    arguments=json_objects,
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
    wrapped=st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_every_object_is_returned_unchanged(arguments, ascii_only, indent, wrapped):
    own = json.dumps(arguments, ensure_ascii=ascii_only, indent=indent)
    written = json.dumps(own, ensure_ascii=ascii_only) if wrapped else own
    text = f'<tool_call>\n{{"name": "ping", "arguments": {written}}}\n</tool_call>'

    def make():
        return properties.calls_parser(FAMILY)

    message = properties.parse(make, text)
    assert [(call.name, call.arguments) for call in message.calls] == [("ping", own)]
    assert message.content is None
    assert properties.parse(make, *text) == message
