"""chat_request: a Messages request to the chat request with the same meaning."""

from __future__ import annotations

from typing import Any

from schemas.anthropic import ConversationFields, MessagesRequest
from schemas.chat import ChatCompletionRequest
from schemas.formats import JsonSchemaFormat, JsonSchemaSpec
from schemas.messages import AssistantMessage, Message
from server.served_model import ServedModel
from server.translate.anthropic.refusals import invalid, refuse_unsupported
from server.translate.anthropic.system import system_texts
from server.translate.anthropic.thinking import template_switches, thinking_budget
from server.translate.anthropic.tools import chat_tool_choice, chat_tools, is_parallel
from server.translate.anthropic.turns import chat_messages


def chat_request(request: ConversationFields, model: ServedModel) -> ChatCompletionRequest:
    """Translate a request. Raises InvalidRequest naming the field."""
    refuse_unsupported(request)
    system = system_texts(request.system, keeps_billing_header=model.settings.keep_billing_header)
    messages = chat_messages(
        request.messages, system, takes_late_system=model.families.takes_late_system
    )
    tools = chat_tools(request)
    thinks = model.families.thinking_tags is not None  # others have nothing to limit
    return ChatCompletionRequest(
        model=request.model,
        messages=messages,
        tools=tools or None,
        tool_choice=chat_tool_choice(request, tools),
        parallel_tool_calls=is_parallel(request),
        response_format=_response_format(request),
        thinking_token_budget=thinking_budget(request) if thinks else None,
        chat_template_kwargs=template_switches(request) or None,
        continue_final_message=_is_begun(messages) or None,
        **_sampling(request),
    )


def _is_begun(messages: list[Message]) -> bool:
    """Whether the last message is the beginning of the answer."""
    last = messages[-1]
    if not isinstance(last, AssistantMessage):
        return False
    if last.tool_calls:
        raise invalid("The last message has calls without results.", "messages")
    if not last.content:
        raise invalid("The last message is the assistant's and has no text.", "messages")
    return True


def _response_format(request: ConversationFields) -> JsonSchemaFormat | None:
    given = request.output_config.format if request.output_config is not None else None
    given = given or request.output_format
    if given is None:
        return None
    return JsonSchemaFormat(json_schema=JsonSchemaSpec(name="output", schema=given.schema))


def _sampling(request: ConversationFields) -> dict[str, Any]:
    if not isinstance(request, MessagesRequest):
        return {}
    return {
        "max_tokens": request.max_tokens,
        "stream": request.stream,
        "stop": request.stop_sequences,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "min_p": request.min_p,
        "seed": request.seed,
        "priority": request.priority,
    }
