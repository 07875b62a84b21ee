"""Tools and tool_choice to those of a chat request. Functions of namespaces get joined names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from schemas.responses import (
    AllowedFunctions,
    NamedFunction,
    ResponseFunction,
    ResponseNamespace,
)
from schemas.responses_request import (
    NamespacedTool,
    ResponsesRequest,
    ResponsesTool,
    ResponsesToolChoice,
    ToolReference,
)
from schemas.tools import (
    AllowedTools,
    AllowedToolsChoice,
    FunctionDefinition,
    FunctionTool,
    FunctionToolChoice,
    ToolChoice,
    ToolName,
)
from server.apis.responses.errors import missing, unsupported

Choice: TypeAlias = Literal["none", "auto", "required"]

SEPARATOR = "__"
"""Between the name of a namespace and that of its function, unless the former ends with one."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions of a request, in order, and the path of each.

    ``names`` are those of functions in namespaces: from namespace and name to the joined name.
    """

    functions: list[FunctionTool] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, request: ResponsesRequest) -> Tools:
        """Raises InvalidRequest for tools that are not functions."""
        tools = cls()
        for i, tool in enumerate(request.tools or ()):
            path = f"tools[{i}]"
            if tool.type == "namespace":
                tools._add_namespace(tool, path)
            else:
                tools._add(tool, path)
        return tools

    @property
    def parts(self) -> Mapping[str, tuple[str, str]]:
        """From a joined name to namespace and name."""
        return {joined: parts for parts, joined in self.names.items()}

    def _add_namespace(self, tool: ResponsesTool, path: str) -> None:
        namespace = _name(tool, path)
        for j, inner in enumerate(tool.tools or ()):
            own = f"{path}.tools[{j}]"
            name = _name(inner, own)
            joined = namespace.removesuffix(SEPARATOR) + SEPARATOR + name
            self.names[namespace, name] = joined
            self._add(inner, own, joined)

    def _add(self, tool: NamespacedTool, path: str, name: str | None = None) -> None:
        if tool.type != "function":
            raise unsupported(f"{path}.type", f"tools of type '{tool.type[:64]}' are")
        definition = FunctionDefinition(
            name=name or _name(tool, path),
            description=tool.description,
            parameters=tool.parameters,
            strict=tool.strict,
        )
        self.functions.append(FunctionTool(function=definition))
        self.paths.append(path)


def chat_tool_choice(request: ResponsesRequest, tools: Tools) -> ToolChoice | None:
    """The choice of a chat request. Without tools, ``auto`` says nothing."""
    choice = request.tool_choice
    if isinstance(choice, str) or choice is None:
        return None if not tools.functions and choice == "auto" else choice
    match choice.type:
        case "function":
            return _function(choice, "tool_choice", tools)
        case "allowed_tools":
            if choice.mode is None:
                raise missing("tool_choice.mode")
            allowed = [
                _function(tool, f"tool_choice.tools[{i}]", tools)
                for i, tool in enumerate(choice.tools or ())
            ]
            return AllowedToolsChoice(
                allowed_tools=AllowedTools(mode=choice.mode, tools=[*allowed])
            )
        case kind:
            raise unsupported("tool_choice.type", f"a choice of type '{kind[:64]}' is")


def shown_tools(request: ResponsesRequest) -> list[ResponseFunction | ResponseNamespace]:
    """The tools as the response repeats them."""
    return [
        ResponseNamespace(
            name=tool.name or "",
            description=tool.description or "",
            tools=[_shown(inner) for inner in tool.tools or ()],
        )
        if tool.type == "namespace"
        else _shown(tool)
        for tool in request.tools or ()
    ]


def shown_choice(
    choice: Choice | ResponsesToolChoice | None,
) -> Choice | NamedFunction | AllowedFunctions:
    """The choice as the response repeats it."""
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    if choice.type == "function":
        return NamedFunction(name=choice.name or "")
    allowed = [NamedFunction(name=tool.name or "") for tool in choice.tools or ()]
    return AllowedFunctions(mode=choice.mode or "auto", tools=allowed)


def _shown(tool: NamespacedTool) -> ResponseFunction:
    return ResponseFunction(
        name=tool.name or "",
        description=tool.description,
        parameters=tool.parameters,
        strict=tool.strict,
    )


def _function(tool: ToolReference, path: str, tools: Tools) -> FunctionToolChoice:
    if tool.type != "function":
        raise unsupported(f"{path}.type", f"tools of type '{tool.type[:64]}' are")
    if tool.name is None:
        raise missing(f"{path}.name")
    name = tool.name
    if tool.namespace is not None:
        name = tools.names.get((tool.namespace, name), name)
    return FunctionToolChoice(function=ToolName(name=name))


def _name(tool: NamespacedTool, path: str) -> str:
    if tool.name is None:
        raise missing(f"{path}.name")
    return tool.name
