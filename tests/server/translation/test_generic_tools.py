"""Tools, calls and results as text of ordinary turns."""

import pytest

from core.contract.errors import InvalidRequest
from core.text.content_forms import parts_of
from schemas.tools import FunctionDefinition
from server.parsers.base import fold
from server.parsers.tool import TOOL_PARSERS
from server.translation.messages import plain_turns

MARKUP = TOOL_PARSERS["generic"].markup
TOOLS = [
    {"type": "function", "function": {"name": "f", "description": "é"}},
    {"type": "function", "function": {"name": "a.b"}},
]
USER = {"role": "user", "content": "hi"}
SYSTEM = {"role": "system", "content": "Be brief."}
JSON_FAMILIES = [name for name in TOOL_PARSERS if TOOL_PARSERS[name].markup.arguments == "json"]


def turns(*messages, tools=TOOLS, markup=MARKUP, takes_system=True):
    return plain_turns(messages, tools, markup=markup, takes_system=takes_system)


def call(name="f", **arguments):
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content):
    return {"role": "tool", "tool_call_id": "c", "content": content}


def said(content, *calls, **more):
    return {"role": "assistant", "content": content, "tool_calls": list(calls)} | more


def wrapped(*contents):
    return "\n".join(f"<tool_response>\n{content}\n</tool_response>" for content in contents)


def test_the_tools_are_in_the_system_turn():
    [system, user] = turns(SYSTEM, USER)
    assert user == USER
    assert system["role"] == "system"
    assert system["content"].startswith("Be brief.\n\nYou may call functions.")
    assert (
        '<tools>\n{"name": "f", "description": "é"}\n{"name": "a.b"}\n</tools>' in system["content"]
    )
    assert '<tool_call>\n{"name": "FUNCTION", "arguments": {' in system["content"]
    [alone, user] = turns(USER)
    assert (alone["role"], user) == ("system", USER)
    assert system["content"] == "Be brief.\n\n" + alone["content"]


def test_a_template_without_system_turns_gets_them_with_the_user_s():
    [user] = turns(USER, takes_system=False)
    assert user["role"] == "user"
    assert user["content"].startswith("You may call functions.")
    assert user["content"].endswith("\n\nhi")


def test_without_tools_there_is_no_list():
    assert turns(SYSTEM, USER, tools=()) == [SYSTEM, USER]


@pytest.mark.parametrize("family", JSON_FAMILIES)
def test_calls_are_text_that_the_family_s_parser_reads(family):
    parser = TOOL_PARSERS[family]
    calls = [call(x=1), call("a.b", y='é\n"}')]
    [_, turn] = turns(USER, said("Well:", *calls), tools=(), markup=parser.markup)
    assert set(turn) == {"role", "content"}
    functions = [FunctionDefinition(name="f"), FunctionDefinition(name="a.b")]
    reader = parser(functions)
    text = turn["content"].removeprefix("Well:\n")
    found = fold([*reader.feed(text), *reader.finish()])
    assert [(call.name, call.arguments) for call in found.calls] == [
        ("f", '{"x": 1}'),
        ("a.b", '{"y": "é\\n\\"}"}'),
    ]


def test_results_are_one_turn_of_the_user():
    found = turns(
        USER,
        said("", call(), call()),
        result("1"),
        result(""),
        {"role": "user", "content": "go on"},
        said("a", reasoning="hm"),
        result("2"),
        {"role": "assistant", "content": "done"},
        tools=(),
    )
    assert [turn["role"] for turn in found] == ["user", "assistant"] * 3
    assert found[2]["content"] == wrapped("1", "") + "\ngo on"
    assert found[3] == {"role": "assistant", "content": "a", "tool_calls": [], "reasoning": "hm"}
    assert found[4]["content"] == wrapped("2")


def test_contents_in_parts_are_lines_only_where_they_change():
    parts = parts_of(["a", "b"])
    user, system = USER | {"content": parts}, SYSTEM | {"content": parts}
    answer = {"role": "assistant", "content": parts}
    assert turns(system, user, answer, tools=()) == [system, user, answer]
    shown = turns(system, user, said(parts, call()), result(parts), user)
    assert shown[0]["content"].startswith("a\nb\n\nYou may call functions.")
    assert shown[1] == user
    assert shown[2]["content"].startswith("a\nb\n<tool_call>")
    assert shown[3]["content"] == wrapped("a\nb") + "\na\nb"


def test_a_result_at_the_start():
    assert turns(result("x"), tools=()) == [{"role": "user", "content": wrapped("x")}]


def test_turns_of_the_user_that_are_no_results_stay_apart():
    assert turns(USER, USER, tools=()) == [USER, USER]


def test_deep_arguments_are_refused():
    deep = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidRequest) as caught:
        turns(USER, said("", call(deep=deep)))
    assert caught.value.param == "messages"
