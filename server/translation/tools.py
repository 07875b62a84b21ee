"""Tools and tool_choice: which tools may or must be called, and the grammar for it.

The older form of tools: ``functions`` and ``function_call`` (OpenAI API reference).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from core.contract.errors import InvalidRequest
from core.contract.grammar import (
    CallMarkup,
    Either,
    Grammar,
    ToolSpec,
    tool_calls,
    tool_calls_in_text,
)
from schemas.chat import ChatCompletionRequest
from schemas.tools import (
    AllowedToolsChoice,
    CustomTool,
    CustomToolChoice,
    FunctionDefinition,
    FunctionTool,
    FunctionToolChoice,
    Tool,
    ToolName,
)
from server.http.errors import conflicting, invalid, unsupported


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """The tools of a request. Without tools, or with ``none``, nothing is callable.

    The chat template gets ``shown``: all tools, so that a subset of them does not change the
    prompt, or none if none may be called. ``is_named``: ``tool_choice`` names one function.
    """

    shown: list[dict[str, Any]] = field(default_factory=list)
    callable: Sequence[FunctionDefinition] = ()
    must_call: bool = False
    is_named: bool = False
    is_parallel: bool = True

    def grammar(self, markup: CallMarkup, text: Grammar | None) -> Grammar | None:
        """The grammar of the answer. ``text`` is the grammar of an answer without calls."""
        if not self.callable:
            return text
        specs = [
            ToolSpec(tool.name, tool.parameters, is_strict=bool(tool.strict))
            for tool in self.callable
        ]
        is_single = not self.is_parallel
        if self.must_call:
            return tool_calls(specs, markup, is_single=is_single)
        if text is None:
            return tool_calls_in_text(specs, markup, is_single=is_single)
        return Either((tool_calls(specs, markup, is_single=is_single), text))


def select_tools(request: ChatCompletionRequest) -> ToolSelection:
    """Read tools, tool_choice and parallel_tool_calls. Raises InvalidRequest naming the field."""
    choice = request.tool_choice
    if not request.tools:
        if choice is not None and choice != "none":
            raise conflicting("tool_choice", "tool_choice is only allowed when tools are given.")
        return ToolSelection()
    functions = _functions(request.tools)
    if choice == "none":
        return ToolSelection()
    chosen = [*functions.values()]
    must_call, is_named = choice == "required", False
    match choice:
        case FunctionToolChoice(function=function):
            chosen, must_call, is_named = [_named(functions, function.name)], True, True
        case AllowedToolsChoice(allowed_tools=allowed):
            if not allowed.tools:
                message = "tool_choice.allowed_tools names no tools."
                raise InvalidRequest(message, param="tool_choice", code="empty_array")
            names = [
                tool.function.name if isinstance(tool, FunctionToolChoice) else tool.custom.name
                for tool in allowed.tools
            ]
            chosen = [_named(functions, name) for name in dict.fromkeys(names)]
            must_call = allowed.mode == "required"
        case CustomToolChoice():
            raise invalid("tool_choice", "Custom tools are not supported.")
    return ToolSelection(
        shown=[_shown(function) for function in functions.values()],
        callable=chosen,
        must_call=must_call,
        is_named=is_named,
        is_parallel=request.parallel_tool_calls is not False and not is_named,
    )


def _functions(tools: list[Tool]) -> dict[str, FunctionDefinition]:
    functions: dict[str, FunctionDefinition] = {}
    for i, tool in enumerate(tools):
        if isinstance(tool, CustomTool):
            raise unsupported(f"tools[{i}].type", "Custom tools are not supported by this server.")
        if tool.function.name in functions:
            raise invalid(
                f"tools[{i}].function.name",
                f"The name '{tool.function.name}' is given to more than one tool.",
            )
        functions[tool.function.name] = tool.function
    return functions


def _shown(function: FunctionDefinition) -> dict[str, Any]:
    """A tool as chat templates expect it: name, description and parameters only."""
    described: dict[str, Any] = {"name": function.name}
    if function.description is not None:
        described["description"] = function.description
    described["parameters"] = (
        {"type": "object", "properties": {}} if function.parameters is None else function.parameters
    )
    return {"type": "function", "function": described}


def _named(functions: dict[str, FunctionDefinition], name: str) -> FunctionDefinition:
    if name not in functions:
        raise invalid("tool_choice", f"tool_choice names '{name[:64]}', which is not among tools.")
    return functions[name]


def with_tools(request: ChatCompletionRequest) -> ChatCompletionRequest:
    """The same request with ``tools`` and ``tool_choice``. It has at most one call.

    Raises InvalidRequest naming the field, also if both forms are given.
    """
    functions, choice = request.functions or [], request.function_call
    if functions and (request.tools or request.tool_choice is not None):
        raise conflicting(
            "functions", "functions is the older form of tools; only one of the two may be given."
        )
    if not functions:
        if choice is not None and choice != "none":
            raise conflicting(
                "function_call", "function_call is only allowed when functions are given."
            )
        return request
    names = [function.name for function in functions]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise invalid(f"functions[{i}].name", f"The name '{name}' is given to more than one.")
    if isinstance(choice, ToolName) and choice.name not in names:
        raise invalid("function_call", f"'{choice.name[:64]}' is not among functions.")
    return msgspec.structs.replace(
        request,
        tools=[FunctionTool(function=function) for function in functions],
        tool_choice=FunctionToolChoice(function=choice) if isinstance(choice, ToolName) else choice,
        parallel_tool_calls=False,
    )
