import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.tools import FunctionDefinition
from server.parsers.base import fold
from server.parsers.tool import TOOL_PARSERS
from tests.server.parsers import properties
from tests.server.parsers.properties import Case, plain

FAMILY = "qwen3_coder"


def call(name, **values):
    inside = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in values.items())
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


WELL_FORMED = [
    plain("Hello <b> <tool_call <function <function"),
    plain("a </function> </tool_call> </parameter> <parameter=x>"),
    Case(call("ping"), None, [("ping", "{}")]),
    Case(
        "I look.\n" + call("get_weather", city="Paris", days="3") + "\n" + call("ping"),
        "I look.",
        [("get_weather", '{"city":"Paris","days":3}'), ("ping", "{}")],
    ),
    Case(
        call("get_weather", city='\n two\n"lines" \\ \t é😀 </param < \n', unit="null"),
        None,
        [
            (
                "get_weather",
                '{"city":"\\n two\\n\\"lines\\" \\\\ \\t é😀 </param < \\n","unit":null}',
            )
        ],
    ),
    Case(
        call(
            "get_weather", exact="True", place='{"a": [1,\n2]}', tags="[]", share="-1.5", unit="C"
        ),
        None,
        [
            (
                "get_weather",
                '{"exact":true,"place":{"a": [1,\n2]},"tags":[],"share":-1.5,"unit":"C"}',
            )
        ],
    ),
    Case(
        call("get_weather", days="many", exact="yes", place="{'a': 1}", anything="5", other="a b"),
        None,
        [
            (
                "get_weather",
                '{"days":"many","exact":"yes","place":"{\'a\': 1}","anything":5,"other":"a b"}',
            )
        ],
    ),
    Case("<function=ping><parameter=a>1</parameter></function>", None, [("ping", '{"a":1}')]),
    Case(
        "<tool_call><function=get_weather><parameter=city></parameter></function></tool_call> ok",
        "ok",
        [("get_weather", '{"city":""}')],
    ),
    Case("<tool_call><function=ping></tool_call>", None, [("ping", "{}")]),
]

MALFORMED = [
    plain(call("nope", text="<function=ping>") + " rest"),
    plain("<tool_call>ping</tool_call>"),
    plain("<tool_call>\n<function=ping x>\n</function>\n</tool_call>"),
    plain("<function=ping>what</function>"),
    plain("<function=ping><parameter=a"),
    plain("<function=ping><parameter=<>"),
    Case("<function=ping", "<function=ping"),
    Case(
        "<function=ping><parameter=a>1</parameter>what</function>",
        "what</function>",
        [("ping", '{"a":1')],
    ),
    Case(
        "<function=ping><parameter=a>1</parameter><parameter=a>2</parameter></function>",
        "<parameter=a>2</parameter></function>",
        [("ping", '{"a":1')],
    ),
    Case("<function=get_weather><parameter=city>\nPar", None, [("get_weather", '{"city":"Par')]),
    Case("<function=get_weather><parameter=days>\n4", None, [("get_weather", '{"days":\n4')]),
    Case(call("ping")[:-4], None, [("ping", "{}")]),
]


@pytest.mark.parametrize("case", [*WELL_FORMED, *MALFORMED], ids=lambda case: case.text)
def test_a_text_is_parsed_alike_however_it_is_cut(case):
    properties.check_case(FAMILY, case)


@pytest.mark.parametrize("case", WELL_FORMED[2:], ids=lambda case: case.text)
def test_markup_is_never_content(case):
    properties.check_leaks(FAMILY, case)


def test_strings_are_streamed():
    parser = properties.calls_parser(FAMILY)
    parser.feed("<tool_call>\n<function=get_weather>\n<parameter=city>\n")
    assert [delta.text for delta in parser.feed('New "')] == [r"New \""]
    assert [delta.text for delta in parser.feed("York\n")] == ["York"]
    assert parser.feed("</para") == []
    assert [delta.text for delta in parser.feed("meter>")] == ['"']


@given(city=st.text(), days=st.integers(), share=st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=50, deadline=None)
def test_values_are_returned_unchanged(city, days, share):
    text = call("get_weather", city=city, days=days, share=share)

    def make():
        return properties.calls_parser(FAMILY)

    message = properties.parse(make, text)
    (made,) = message.calls
    assert json.loads(made.arguments) == {"city": city, "days": days, "share": share}
    assert properties.parse(make, *text) == message


def test_a_tool_without_a_schema_takes_any_parameter():
    parser = TOOL_PARSERS[FAMILY]([FunctionDefinition(name="f")])
    (made,) = fold(parser.feed(call("f", x="[1]", y="z")) + parser.finish()).calls
    assert made.arguments == '{"x":[1],"y":"z"}'
