"""Tools and tool_choice of a Messages request to those of a chat request."""

from __future__ import annotations

from collections.abc import Iterator

from schemas import anthropic as wire
from schemas import tools as chat
from server.http.errors import invalid, missing, unsupported

CUSTOM = (None, "custom")


def chat_tools(request: wire.ConversationFields) -> list[chat.Tool]:
    """The tools that the model sees. Raises InvalidRequest naming the tool's field.

    A tool with ``defer_loading`` is left out until the conversation or ``tool_choice`` names it.
    """
    tools = request.tools or []
    for i, tool in enumerate(tools):
        if tool.type not in CUSTOM:
            raise unsupported(
                f"Tools of type '{(tool.type or '')[:64]}' are not supported by this server; it "
                "takes tools with an input_schema.",
                f"tools[{i}].type",
            )
        if tool.input_schema is None:
            raise missing(f"tools[{i}].input_schema")
    loaded = set(_names_in(request)) if any(tool.defer_loading for tool in tools) else set()
    return [_tool(tool) for tool in tools if not tool.defer_loading or tool.name in loaded]


def chat_tool_choice(
    request: wire.ConversationFields, tools: list[chat.Tool]
) -> chat.ToolChoice | None:
    """The choice among the tools that the model sees. Raises InvalidRequest."""
    choice = request.tool_choice
    match choice:
        case wire.AnyChoice() | wire.OneToolChoice() if not tools:
            raise invalid("tool_choice is only allowed when tools are given.", "tool_choice")
        case wire.AnyChoice():
            return "required"
        case wire.OneToolChoice(name=name):
            return chat.FunctionToolChoice(function=chat.ToolName(name=name))
        case wire.NoChoice():
            return "none"
        case _:
            return None


def _tool(tool: wire.ToolDefinition) -> chat.Tool:
    return chat.FunctionTool(
        function=chat.FunctionDefinition(
            name=tool.name,
            description=tool.description,
            parameters=tool.input_schema,
            strict=tool.strict,
        )
    )


def _names_in(request: wire.ConversationFields) -> Iterator[str]:
    """Tools that were found or called so far, or have to be called."""
    if isinstance(request.tool_choice, wire.OneToolChoice):
        yield request.tool_choice.name
    for turn in request.messages:
        if isinstance(turn.content, str):
            continue
        for block in turn.content:
            if isinstance(block, wire.ToolUseBlock) and isinstance(turn, wire.AssistantTurn):
                yield block.name
            elif isinstance(block, wire.ToolResultBlock) and not isinstance(block.content, str):
                for part in block.content or ():
                    if isinstance(part, wire.ToolReferenceBlock):
                        yield part.tool_name
