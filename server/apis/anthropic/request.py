"""Messages requests to jobs and counts. Runs in a worker thread.

The system prompt, without the line that differs in every request.

chat_request: a Messages request to the chat request with the same meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from schemas.anthropic import ConversationFields, CountTokensRequest, MessagesRequest, OnlyText
from schemas.anthropic_answer import TokenCount
from schemas.chat import ChatCompletionRequest
from schemas.formats import JsonSchemaFormat, JsonSchemaSpec
from schemas.messages import AssistantMessage, Message
from server.apis.anthropic.refusals import invalid, refuse_unsupported
from server.apis.anthropic.renderer import MessageForm, MessageRenderer
from server.apis.anthropic.thinking import omits_thinking, template_switches, thinking_budget
from server.apis.anthropic.tools import chat_tool_choice, chat_tools, is_parallel
from server.apis.anthropic.turns import chat_messages
from server.generation.job import Job
from server.generation.model import ServedModel
from server.translation.chat import chat_job
from server.translation.prompts import counted_prompt
from server.translation.tools import select_tools

BILLING = "x-anthropic-billing-header:"
"""Begins a line that Claude Code puts first. It contains a checksum of the request (``cch=``), so
no prefix of two prompts would be equal."""


def system_texts(
    system: str | Sequence[OnlyText] | None, *, keeps_billing_header: bool
) -> list[str]:
    """The texts of the system prompt that are not empty."""
    blocks = [system] if isinstance(system, str) else [block.text for block in system or ()]
    texts: Iterator[str] = iter(blocks)
    if not keeps_billing_header:
        texts = map(_without_billing, texts)
    return [text for text in texts if text]


def _without_billing(text: str) -> str:
    if not text.startswith(BILLING):
        return text
    _, _, rest = text.partition("\n")
    return rest.lstrip("\n")


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


def translate_messages(request: MessagesRequest, model: ServedModel) -> Job:
    """Check the fields, render the chat template and tokenize. Raises InvalidRequest."""
    form = MessageForm(
        max_tokens=request.max_tokens,
        omits_thinking=omits_thinking(request),
    )
    job = chat_job(
        chat_request(request, model),
        model,
        id_prefix="msg_",
        new_renderer=partial(MessageRenderer, form=form),
        clamps_length=True,
    )
    if job.new_grammars is not None:
        config = request.output_config
        is_new = config is not None and config.format is not None
        name = "output_config.format" if is_new else "output_format"
        job.new_grammars.rename_params(lambda param: name if param == "response_format" else param)
    return job


def count_tokens(request: CountTokensRequest, model: ServedModel) -> bytes:
    """The JSON of the number of prompt tokens that the same Messages request has.

    A conversation that does not fit into the context is counted too. Raises InvalidRequest.
    """
    model.check_generates()
    chat = chat_request(request, model)
    tokens = counted_prompt(chat, model, select_tools(chat).shown)
    return msgspec.json.encode(TokenCount(input_tokens=len(tokens)))
