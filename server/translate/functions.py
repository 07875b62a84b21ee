"""The older form of tools: ``functions`` and ``function_call`` (OpenAI API reference)."""

from __future__ import annotations

import msgspec

from core.contract.errors import InvalidRequest
from schemas.chat import ChatCompletionRequest
from schemas.tools import FunctionTool, FunctionToolChoice, ToolChoice, ToolName


def uses_functions(request: ChatCompletionRequest) -> bool:
    """Whether the answer's call belongs into ``function_call``."""
    return bool(request.functions)


def with_tools(request: ChatCompletionRequest) -> ChatCompletionRequest:
    """The same request with ``tools`` and ``tool_choice``. It has at most one call.

    Raises InvalidRequest naming the field, also if both forms are given.
    """
    functions, choice = request.functions or [], request.function_call
    if functions and (request.tools or request.tool_choice is not None):
        raise InvalidRequest(
            "functions is the older form of tools; only one of the two may be given.",
            param="functions",
            code="invalid_parameter_combination",
        )
    if not functions:
        if choice is not None and choice != "none":
            raise InvalidRequest(
                "function_call is only allowed when functions are given.",
                param="function_call",
                code="invalid_parameter_combination",
            )
        return request
    names = [function.name for function in functions]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise _invalid(f"The name '{name}' is given to more than one.", f"functions[{i}].name")
    tool_choice: ToolChoice | None
    if isinstance(choice, ToolName):
        if choice.name not in names:
            raise _invalid(f"'{choice.name[:64]}' is not among functions.", "function_call")
        tool_choice = FunctionToolChoice(function=choice)
    else:
        tool_choice = choice
    return msgspec.structs.replace(
        request,
        tools=[FunctionTool(function=function) for function in functions],
        tool_choice=tool_choice,
        parallel_tool_calls=False,
    )


def _invalid(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, param=param, code="invalid_value")
