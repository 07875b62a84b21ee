import pytest

from core.contract.errors import InvalidRequest
from schemas.tools import AllowedToolsChoice, FunctionToolChoice
from server.apis.responses.conversation import Tools
from tests.support.each import each

F = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
G = {"type": "function", "name": "g"}
FILES = {"type": "namespace", "name": "files", "description": "Files.", "tools": [F, G]}


def test_functions(decode):
    tools = Tools.of(decode(tools=[F, G | {"description": "d"}]))
    first, second = (tool.function for tool in tools.functions)
    assert (first.name, first.parameters, first.strict) == ("f", {"type": "object"}, False)
    assert (second.description, second.parameters, second.strict) == ("d", None, None)
    assert tools.paths == ["tools[0]", "tools[1]"]


@each(("name", "joined"), [("files", "files__f"), ("mcp__files__", "mcp__files__f")])
def test_functions_of_a_namespace(decode, name, joined):
    tools = Tools.of(decode(tools=[F, FILES | {"name": name}]))
    assert [tool.function.name for tool in tools.functions][:2] == ["f", joined]
    assert tools.paths == ["tools[0]", "tools[1].tools[0]", "tools[1].tools[1]"]
    assert tools.names[name, "f"] == joined
    choice = {"type": "function", "name": "f", "namespace": name}
    chosen = tools.choice(decode(tool_choice=choice))
    assert chosen.function.name == joined


@each("name", ["files.read", "mcp__" + "x" * 100])
def test_names_as_agents_send_them(decode, name):
    [tool] = Tools.of(decode(tools=[F | {"name": name}])).functions
    assert tool.function.name == name


def test_tool_choices(decode):
    def chosen(choice, *, tools=(F, G)):
        request = decode(tool_choice=choice, tools=list(tools))
        return Tools.of(request).choice(request)

    assert [chosen(choice) for choice in ("none", "auto", "required", None)] == [
        "none",
        "auto",
        "required",
        None,
    ]
    assert chosen("auto", tools=()) is None
    assert chosen("required", tools=()) == "required"
    named = chosen({"type": "function", "name": "g"})
    assert isinstance(named, FunctionToolChoice)
    assert named.function.name == "g"
    reference = {"type": "function", "name": "f"}
    allowed = chosen({"type": "allowed_tools", "mode": "required", "tools": [reference]})
    assert isinstance(allowed, AllowedToolsChoice)
    assert allowed.allowed_tools.mode == "required"
    assert [tool.function.name for tool in allowed.allowed_tools.tools] == ["f"]


@each(
    ("fields", "param"),
    [
        ({"tools": [F, {"type": "web_search"}]}, "tools[1].type"),
        ({"tools": [{"type": "custom", "name": "x"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "namespace", "tools": [F]}]}, "tools[0].name"),
        (
            {"tools": [FILES | {"tools": [{"type": "custom", "name": "x"}]}]},
            "tools[0].tools[0].type",
        ),
        ({"tools": [F, F]}, "tools[1].name"),
        ({"tools": [F], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tools": [F], "tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tools": [F], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"tools": [F], "tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.mode"),
        (
            {
                "tools": [F],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "mcp", "name": "x"}],
                },
            },
            "tool_choice.tools[0].type",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_others_are_refused_by_name(refused, fields, param):
    refused(param, **fields)


def test_the_type_is_in_the_message(decode):
    with pytest.raises(InvalidRequest, match="web_search"):
        Tools.of(decode(tools=[{"type": "web_search"}]))
