"""The older form of tools becomes the newer one."""

import msgspec
import pytest

from core.contract.errors import InvalidRequest
from schemas.chat import ChatCompletionRequest
from schemas.tools import FunctionToolChoice
from server.translation.tools import select_tools, with_tools
from tests.support.each import each

F = {"name": "f", "description": "d", "parameters": {"type": "object"}}
G = {"name": "g"}


def request(**fields):
    body = {"messages": [{"role": "user", "content": "hi"}]} | fields
    return msgspec.json.decode(msgspec.json.encode(body), type=ChatCompletionRequest)


@each(
    ("choice", "names", "must_call"),
    [
        ({}, "fg", False),
        ({"function_call": None}, "fg", False),
        ({"function_call": "auto"}, "fg", False),
        ({"function_call": {"name": "g"}}, "g", True),
    ],
)
def test_functions_are_tools_of_which_one_may_be_called(choice, names, must_call):
    given = request(functions=[F, G], **choice)
    found = select_tools(with_tools(given))
    assert [tool.name for tool in found.callable] == list(names)
    assert (found.must_call, found.is_named, found.is_parallel) == (must_call, must_call, False)
    assert found.shown[0] == {"type": "function", "function": F}


def test_none_of_the_functions():
    found = with_tools(request(functions=[F], function_call="none"))
    assert found.tool_choice == "none"
    assert not select_tools(found).callable


@each("fields", [{}, {"functions": []}, {"function_call": "none"}, {"functions": [], "tools": []}])
def test_a_request_without_functions_stays(fields):
    given = request(**fields)
    assert with_tools(given) == given


@each(
    ("fields", "param"),
    [
        ({"functions": [F], "tools": [{"type": "function", "function": G}]}, "functions"),
        ({"functions": [F], "tool_choice": "auto"}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"functions": [F], "function_call": {"name": "x"}}, "function_call"),
        ({"functions": [F, G, F]}, "functions[2].name"),
    ],
)
def test_errors_name_the_older_fields(fields, param):
    with pytest.raises(InvalidRequest) as caught:
        with_tools(request(**fields))
    assert caught.value.param == param


def test_the_choice_is_a_tool_s():
    choice = with_tools(request(functions=[F], function_call={"name": "f"})).tool_choice
    assert isinstance(choice, FunctionToolChoice)
