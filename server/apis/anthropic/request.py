"""Messages requests to jobs and counts. Runs in a worker thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from core.contract.errors import InvalidRequest
from schemas import anthropic as wire
from schemas import tools as functions
from schemas.anthropic_answer import TokenCount
from schemas.chat import ChatCompletionRequest
from schemas.formats import JsonSchemaFormat, JsonSchemaSpec
from schemas.messages import AssistantMessage, Message
from server.apis.anthropic.renderer import MessageRenderer
from server.apis.anthropic.turns import chat_messages
from server.generation.job import Job
from server.generation.model import ServedModel
from server.http.errors import invalid, missing, unsupported
from server.translation.chat import chat_job
from server.translation.prompts import counted_prompt
from server.translation.tools import select_tools

BILLING = "x-anthropic-billing-header:"
"""Begins a line that Claude Code puts first. It contains a checksum of the request (``cch=``), so
no prefix of two prompts would be equal."""

SAME_FIELDS = ("max_tokens", "stream", "temperature", "top_p", "top_k", "min_p", "seed", "priority")
"""Fields of MessagesRequest that chat requests have, with the same meaning."""


def system_texts(
    system: str | Sequence[wire.OnlyText] | None, *, keeps_billing_header: bool
) -> list[str]:
    """The texts of the system prompt that are not empty."""
    texts = [system] if isinstance(system, str) else [block.text for block in system or ()]
    for i, text in enumerate(texts):
        if text.startswith(BILLING) and not keeps_billing_header:
            texts[i] = text.partition("\n")[2].lstrip("\n")
    return [text for text in texts if text]


def chat_request(request: wire.ConversationFields, model: ServedModel) -> ChatCompletionRequest:
    """Translate a request. Raises InvalidRequest naming the field."""
    _refuse_unsupported(request)
    system = system_texts(request.system, keeps_billing_header=model.settings.keep_billing_header)
    messages = chat_messages(
        request.messages, system, takes_late_system=model.families.takes_late_system
    )
    tools = chat_tools(request)
    choice, thinking = request.tool_choice, request.thinking
    thinks = model.families.thinking_tags is not None  # others have nothing to limit
    limit = thinking.budget_tokens if isinstance(thinking, wire.ThinkingEnabled) else None
    fields: dict[str, Any] = {name: getattr(request, name, None) for name in SAME_FIELDS}
    return ChatCompletionRequest(
        **fields,
        model=request.model,
        messages=messages,
        stop=getattr(request, "stop_sequences", None),
        tools=tools or None,
        tool_choice=chat_tool_choice(request, tools),
        parallel_tool_calls=False if choice and choice.disable_parallel_tool_use else None,
        response_format=_response_format(request),
        thinking_token_budget=limit if thinks else None,
        chat_template_kwargs=_template_switches(request) or None,
        continue_final_message=_is_begun(messages) or None,
    )


def _refuse_unsupported(request: wire.ConversationFields) -> None:
    """Raise InvalidRequest naming the first field that is not supported."""
    if request.thread is not None:
        raise InvalidRequest(
            "This server keeps no threads. Send the whole conversation without 'thread'.",
            param="thread",
            code="thread_unsupported_request",  # clients then send the whole conversation
        )
    for name in ("container", "mcp_servers", "compaction"):
        if getattr(request, name):
            raise unsupported(name, f"'{name}' is not supported by this server.")


def _template_switches(request: wire.ConversationFields) -> dict[str, Any]:
    """Variables of the chat template. Without ``thinking`` the template's default applies."""
    switches: dict[str, Any] = {}
    if request.thinking is not None:
        switches["enable_thinking"] = not isinstance(request.thinking, wire.ThinkingDisabled)
    if request.output_config is not None and request.output_config.effort is not None:
        switches["reasoning_effort"] = request.output_config.effort
    return switches


def _is_begun(messages: list[Message]) -> bool:
    """Whether the last message is the beginning of the answer."""
    last = messages[-1]
    if not isinstance(last, AssistantMessage):
        return False
    if last.tool_calls:
        raise invalid("messages", "The last message has calls without results.")
    if not last.content:
        raise invalid("messages", "The last message is the assistant's and has no text.")
    return True


def _response_format(request: wire.ConversationFields) -> JsonSchemaFormat | None:
    config = request.output_config
    given = (config and config.format) or request.output_format
    if given is None:
        return None
    return JsonSchemaFormat(json_schema=JsonSchemaSpec(name="output", schema=given.schema))


def translate_messages(request: wire.MessagesRequest, model: ServedModel) -> Job:
    """Check the fields, render the chat template and tokenize. Raises InvalidRequest."""
    job = chat_job(
        chat_request(request, model),
        model,
        id_prefix="msg_",
        new_renderer=partial(
            MessageRenderer,
            max_tokens=request.max_tokens,
            omits_thinking=getattr(request.thinking, "display", None) == "omitted",
        ),
        clamps_length=True,
    )
    config = request.output_config
    is_new = config is not None and config.format is not None
    name = "output_config.format" if is_new else "output_format"
    job.new_grammars.rename_params(lambda param: name if param == "response_format" else param)
    return job


def count_tokens(request: wire.CountTokensRequest, model: ServedModel) -> bytes:
    """The JSON of the number of prompt tokens that the same Messages request has.

    A conversation that does not fit into the context is counted too. Raises InvalidRequest.
    """
    model.check_generates()
    chat = chat_request(request, model)
    tokens = counted_prompt(chat, model, select_tools(chat).shown)
    return msgspec.json.encode(TokenCount(input_tokens=len(tokens)))


def chat_tools(request: wire.ConversationFields) -> list[functions.Tool]:
    """The tools that the model sees. Raises InvalidRequest naming the tool's field.

    A tool with ``defer_loading`` is left out until the conversation or ``tool_choice`` names it.
    """
    tools = request.tools or []
    for i, tool in enumerate(tools):
        if tool.type not in (None, "custom"):
            raise unsupported(
                f"tools[{i}].type",
                f"Tools of type '{(tool.type or '')[:64]}' are not supported by this server; it "
                "takes tools with an input_schema.",
            )
        if tool.input_schema is None:
            raise missing(f"tools[{i}].input_schema")
    loaded = set(_names_in(request)) if any(tool.defer_loading for tool in tools) else set()
    return [_tool(tool) for tool in tools if not tool.defer_loading or tool.name in loaded]


def chat_tool_choice(
    request: wire.ConversationFields, tools: list[functions.Tool]
) -> functions.ToolChoice | None:
    """The choice among the tools that the model sees. Raises InvalidRequest."""
    match request.tool_choice:
        case wire.AnyChoice() | wire.OneToolChoice() if not tools:
            raise invalid("tool_choice", "tool_choice is only allowed when tools are given.")
        case wire.AnyChoice():
            return "required"
        case wire.OneToolChoice(name=name):
            return functions.FunctionToolChoice(function=functions.ToolName(name=name))
        case wire.NoChoice():
            return "none"
        case _:
            return None


def _tool(tool: wire.ToolDefinition) -> functions.Tool:
    return functions.FunctionTool(
        function=functions.FunctionDefinition(
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
