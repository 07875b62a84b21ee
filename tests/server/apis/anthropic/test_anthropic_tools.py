"""Tools and the choice among them."""

import pytest

from core.contract.errors import InvalidRequest
from server.apis.anthropic.request import chat_request, chat_tool_choice, chat_tools
from server.translation.tools import select_tools

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def tool(name, **fields):
    return {"name": name, "description": "d", "input_schema": SCHEMA, **fields}


TOOLS = [tool("f"), tool("g")]
DEFERRED = [tool("f"), tool("g", defer_loading=True), tool("h", defer_loading=True)]


@pytest.fixture
def names(decoded):
    """Names of the tools that the model sees."""
    return lambda **fields: [t.function.name for t in chat_tools(decoded(**fields))]


@pytest.fixture
def choice(decoded):
    def choice(**fields):
        request = decoded(**fields)
        return chat_tool_choice(request, chat_tools(request))

    return choice


def test_a_tool_is_a_function(decoded):
    [found] = chat_tools(decoded(tools=[tool("f", type="custom", strict=True, cache_control={})]))
    function = found.function
    assert (function.name, function.description, function.strict) == ("f", "d", True)
    assert function.parameters == SCHEMA


@pytest.mark.parametrize("type_", ["web_search_20250305", "bash_20250124", "computer_20250124"])
def test_tools_of_anthropics_are_refused_by_name(decoded, type_):
    with pytest.raises(InvalidRequest) as caught:
        chat_tools(decoded(tools=[tool("f"), {"type": type_, "name": "g"}]))
    assert (caught.value.param, caught.value.code) == ("tools[1].type", "unsupported_parameter")
    assert type_ in caught.value.message


class TestDeferred:
    def test_is_not_seen_at_first(self, names):
        assert names(tools=DEFERRED) == ["f"]

    def test_is_seen_once_it_was_found(self, names):
        reference = {"type": "tool_reference", "tool_name": "h"}
        result = {"type": "tool_result", "tool_use_id": "1", "content": [reference]}
        found = names(tools=DEFERRED, messages=[{"role": "user", "content": [result]}])
        assert found == ["f", "h"]

    def test_is_seen_once_it_was_called(self, names):
        call = {"type": "tool_use", "id": "1", "name": "g", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "1", "content": "x"}
        turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        assert names(tools=DEFERRED, messages=turns) == ["f", "g"]

    def test_is_seen_if_it_must_be_called(self, names):
        choice = {"type": "tool", "name": "g"}
        assert names(tools=DEFERRED, tool_choice=choice) == ["f", "g"]


class TestChoice:
    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            (None, None),
            ({"type": "auto"}, None),
            ({"type": "any"}, "required"),
            ({"type": "none"}, "none"),
        ],
    )
    def test_words(self, choice, given, wanted):
        assert choice(tools=TOOLS, tool_choice=given) == wanted

    def test_one_tool(self, choice):
        found = choice(tools=TOOLS, tool_choice={"type": "tool", "name": "g"})
        assert found.function.name == "g"

    @pytest.mark.parametrize("given", [{"type": "any"}, {"type": "tool", "name": "f"}])
    def test_needs_tools(self, choice, given):
        with pytest.raises(InvalidRequest) as caught:
            choice(tools=[], tool_choice=given)
        assert caught.value.param == "tool_choice"

    def test_without_tools_the_rest_has_no_effect(self, choice):
        assert choice(tools=[], tool_choice={"type": "auto"}) is None

    @pytest.mark.parametrize("kind", ["auto", "any"])
    def test_one_call_at_a_time(self, decoded, model, kind):
        def is_parallel(choice):
            request = decoded(tools=TOOLS, tool_choice=choice)
            return chat_request(request, model()).parallel_tool_calls

        assert is_parallel({"type": kind}) is None
        assert is_parallel({"type": kind, "disable_parallel_tool_use": True}) is False

    def test_the_chat_path_takes_it(self, decoded, model):
        fields = {"tools": TOOLS, "tool_choice": {"type": "any"}}
        selection = select_tools(chat_request(decoded(**fields), model()))
        assert selection.must_call
        assert [function.name for function in selection.callable] == ["f", "g"]
