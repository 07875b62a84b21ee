import msgspec
import pytest

from core.contract.errors import InvalidRequest
from core.contract.grammar import (
    Either,
    ToolSpec,
    json_object,
    tool_calls,
    tool_calls_in_text,
)
from schemas.chat import ChatCompletionRequest
from server.parsers.tool import TOOL_PARSERS
from server.translation.tools import ToolSelection, select_tools
from tests.support.each import each

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}}


def function(name, **fields):
    return {"type": "function", "function": {"name": name} | fields}


def named(name):
    return {"type": "function", "function": {"name": name}}


def allowed(mode, *names):
    return {
        "type": "allowed_tools",
        "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]},
    }


TOOLS = [
    function("f", description="Does f.", parameters=SCHEMA, strict=True),
    function("g", parameters=None, strict=None),
    function("h", parameters={}),
]


def select(**fields):
    body = {"messages": [{"role": "user", "content": "hi"}]} | fields
    return select_tools(msgspec.json.decode(msgspec.json.encode(body), type=ChatCompletionRequest))


def names(tools):
    return [tool.name for tool in tools.callable]


@pytest.mark.parametrize("tools", [None, []])
@pytest.mark.parametrize("choice", [None, "none"])
def test_no_tools(tools, choice):
    assert select(tools=tools, tool_choice=choice) == ToolSelection()


@each(
    ("choice", "parallel", "callable_names", "must_call", "is_named", "is_parallel"),
    [
        (None, None, "fgh", False, False, True),
        ("auto", None, "fgh", False, False, True),
        ("auto", True, "fgh", False, False, True),
        ("auto", False, "fgh", False, False, False),
        ("required", None, "fgh", True, False, True),
        ("required", False, "fgh", True, False, False),
        (named("g"), None, "g", True, True, False),
        (named("g"), True, "g", True, True, False),
        (allowed("auto", "h", "f"), None, "hf", False, False, True),
        (allowed("required", "h"), None, "h", True, False, True),
        (allowed("required", "h", "f", "h"), False, "hf", True, False, False),
    ],
)
def test_choices(choice, parallel, callable_names, must_call, is_named, is_parallel):
    found = select(tools=TOOLS, tool_choice=choice, parallel_tool_calls=parallel)
    assert names(found) == list(callable_names)
    assert (found.must_call, found.is_named, found.is_parallel) == (
        must_call,
        is_named,
        is_parallel,
    )
    assert [tool["function"]["name"] for tool in found.shown] == ["f", "g", "h"]


def test_choice_none_shows_no_tools():
    assert select(tools=TOOLS, tool_choice="none") == ToolSelection()


def test_the_template_gets_name_description_and_parameters():
    assert select(tools=TOOLS).shown == [
        {
            "type": "function",
            "function": {"name": "f", "description": "Does f.", "parameters": SCHEMA},
        },
        {
            "type": "function",
            "function": {"name": "g", "parameters": {"type": "object", "properties": {}}},
        },
        {"type": "function", "function": {"name": "h", "parameters": {}}},
    ]
    assert list(select(tools=TOOLS).shown[0]["function"]["parameters"]["properties"]) == ["b", "a"]


@each(
    ("fields", "param", "code"),
    [
        ({"tool_choice": "auto"}, "tool_choice", "invalid_parameter_combination"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_parameter_combination"),
        ({"tool_choice": named("f")}, "tool_choice", "invalid_parameter_combination"),
        ({"tool_choice": allowed("auto")}, "tool_choice", "invalid_parameter_combination"),
        ({"tools": TOOLS, "tool_choice": named("x")}, "tool_choice", "invalid_value"),
        ({"tools": TOOLS, "tool_choice": allowed("auto", "x")}, "tool_choice", "invalid_value"),
        ({"tools": TOOLS, "tool_choice": allowed("auto")}, "tool_choice", "empty_array"),
        ({"tools": TOOLS, "tool_choice": allowed("required")}, "tool_choice", "empty_array"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "custom", "custom": {"name": "f"}}},
            "tool_choice",
            "invalid_value",
        ),
        (
            {"tools": [*TOOLS, {"type": "custom", "custom": {"name": "c"}}]},
            "tools[3].type",
            "unsupported_parameter",
        ),
        ({"tools": [*TOOLS, function("g")]}, "tools[3].function.name", "invalid_value"),
        (
            {"tools": [*TOOLS, function("g")], "tool_choice": "none"},
            "tools[3].function.name",
            "invalid_value",
        ),
    ],
)
def test_invalid_choices_are_refused(fields, param, code):
    with pytest.raises(InvalidRequest) as caught:
        select(**fields)
    assert (caught.value.param, caught.value.code) == (param, code)


class TestGrammar:
    SPECS = (ToolSpec("f", SCHEMA, is_strict=True), ToolSpec("g"), ToolSpec("h", {}))

    @pytest.fixture(params=TOOL_PARSERS)
    def markup(self, request):
        return TOOL_PARSERS[request.param].markup

    def test_without_callable_tools(self, markup):
        assert ToolSelection().grammar(markup, None) is None
        assert ToolSelection().grammar(markup, json_object()) == json_object()

    @each("parallel", [True, False])
    def test_required(self, markup, parallel):
        found = select(tools=TOOLS, tool_choice="required", parallel_tool_calls=parallel)
        expected = tool_calls(self.SPECS, markup, is_single=not parallel)
        assert found.grammar(markup, None) == expected
        assert found.grammar(markup, json_object()) == expected

    def test_named(self, markup):
        found = select(tools=TOOLS, tool_choice=named("f"))
        assert found.grammar(markup, None) == tool_calls(self.SPECS[:1], markup, is_single=True)

    @each("parallel", [True, False])
    def test_auto(self, markup, parallel):
        found = select(tools=TOOLS, parallel_tool_calls=parallel)
        is_single = not parallel
        assert found.grammar(markup, None) == tool_calls_in_text(
            self.SPECS, markup, is_single=is_single
        )
        assert found.grammar(markup, json_object()) == Either(
            (tool_calls(self.SPECS, markup, is_single=is_single), json_object())
        )
