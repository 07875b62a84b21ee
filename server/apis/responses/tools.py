"""Tools and tool_choice to those of a chat request. Functions of namespaces get joined names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas import tools as chat
from schemas.responses_request import NamespacedTool, ResponsesRequest, ToolReference
from server.apis.responses.errors import given, unsupported
from server.http.errors import missing

SEPARATOR = "__"
"""Between the name of a namespace and that of its function, unless the former ends with one."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions of a request, in order, and the path of each.

    ``names`` are those of functions in namespaces: from namespace and name to the joined name.
    """

    functions: list[chat.Tool] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, request: ResponsesRequest) -> Tools:
        """Raises InvalidRequest for tools that are not functions."""
        tools = cls()
        for i, tool in enumerate(request.tools or ()):
            path = f"tools[{i}]"
            if tool.type != "namespace":
                tools._add(tool, path)
                continue
            namespace = given(tool.name, f"{path}.name")
            for j, inner in enumerate(tool.tools or ()):
                name = given(inner.name, f"{path}.tools[{j}].name")
                joined = namespace.removesuffix(SEPARATOR) + SEPARATOR + name
                tools.names[namespace, name] = joined
                tools._add(inner, f"{path}.tools[{j}]", joined)
        return tools

    @property
    def parts(self) -> Mapping[str, tuple[str, str]]:
        """From a joined name to namespace and name."""
        return {joined: parts for parts, joined in self.names.items()}

    def choice(self, request: ResponsesRequest) -> chat.ToolChoice | None:
        """The choice of a chat request. Without tools, ``auto`` says nothing."""
        choice = request.tool_choice
        if isinstance(choice, str) or choice is None:
            return None if not self.functions and choice == "auto" else choice
        match choice.type:
            case "function":
                return self._chosen(choice, "tool_choice")
            case "allowed_tools":
                if choice.mode is None:
                    raise missing("tool_choice.mode")
                allowed = [
                    self._chosen(tool, f"tool_choice.tools[{i}]")
                    for i, tool in enumerate(choice.tools or ())
                ]
                return chat.AllowedToolsChoice(
                    allowed_tools=chat.AllowedTools(mode=choice.mode, tools=[*allowed])
                )
            case kind:
                raise unsupported("tool_choice.type", f"a choice of type '{kind[:64]}' is")

    def joined_name(self, name: str, namespace: str | None) -> str:
        """The name in the prompt of a function, perhaps of a namespace."""
        return name if namespace is None else self.names.get((namespace, name), name)

    def _add(self, tool: NamespacedTool, path: str, name: str | None = None) -> None:
        if tool.type != "function":
            raise unsupported(f"{path}.type", f"tools of type '{tool.type[:64]}' are")
        definition = chat.FunctionDefinition(
            name=name or given(tool.name, f"{path}.name"),
            description=tool.description,
            parameters=tool.parameters,
            strict=tool.strict,
        )
        self.functions.append(chat.FunctionTool(function=definition))
        self.paths.append(path)

    def _chosen(self, tool: ToolReference, path: str) -> chat.FunctionToolChoice:
        if tool.type != "function":
            raise unsupported(f"{path}.type", f"tools of type '{tool.type[:64]}' are")
        name = self.joined_name(given(tool.name, f"{path}.name"), tool.namespace)
        return chat.FunctionToolChoice(function=chat.ToolName(name=name))
