"""A request for a response to a chat request.

``truncation: auto``: leaves out the oldest turns of a conversation that is too long.

translate_response: a request for a response to a Job. Runs in a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from core.contract.errors import ContextLengthExceeded, InvalidRequest
from schemas.chat import ChatCompletionRequest
from schemas.formats import JsonObjectFormat, JsonSchemaFormat, JsonSchemaSpec, ResponseFormat
from schemas.messages import DeveloperMessage, SystemMessage, UserMessage
from schemas.responses_request import ResponsesRequest, TextJsonSchema
from server.apis.responses.errors import Origins, missing, named_by_client, unsupported
from server.apis.responses.input_items import PlacedItem, conversation_of
from server.apis.responses.output import ItemOptions
from server.apis.responses.renderer import renderer_of
from server.apis.responses.stored import Shelf
from server.apis.responses.tools import Tools, chat_tool_choice
from server.generation.job import Job
from server.generation.model import ServedModel
from server.http.decoding import check_nesting
from server.translation.chat import chat_job

LOGPROBS = "message.output_text.logprobs"
SEALED_REASONING = "reasoning.encrypted_content"

SAME_FIELDS = sorted(
    {*ResponsesRequest.__struct_fields__}
    & {*ChatCompletionRequest.__struct_fields__}
    - {
        "moderation",
        "prompt_cache_options",
        "service_tier",
        "metadata",
        "stream_options",
        "tool_choice",
        "tools",
        "top_logprobs",
    }
)
"""Fields that both requests have, with the same meaning."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The chat request, where its parts come from, and how its answer is shown."""

    request: ChatCompletionRequest
    origins: Origins
    item_options: ItemOptions


def chat_request(request: ResponsesRequest, items: Sequence[PlacedItem]) -> ChatRequest:
    """Translate a request whose conversation is ``items``. Raises InvalidRequest."""
    _refuse_unsupported(request)
    tools = Tools.of(request)
    conversation = conversation_of(items, tools.names)
    messages, paths = conversation.messages, conversation.paths
    if request.instructions:
        messages.insert(0, SystemMessage(content=request.instructions))
        paths.insert(0, "instructions")
    if not messages:
        raise missing("input")
    include, reasoning = request.include or (), request.reasoning
    fields: dict[str, Any] = {name: getattr(request, name) for name in SAME_FIELDS}
    has_logprobs = LOGPROBS in include or bool(request.top_logprobs)
    chat = ChatCompletionRequest(
        **fields,
        messages=messages,
        max_completion_tokens=request.max_output_tokens,
        tools=[*tools.functions] or None,
        tool_choice=chat_tool_choice(request, tools),
        response_format=_format(request),
        reasoning_effort=None if reasoning is None else reasoning.effort,
        logprobs=has_logprobs or None,
        top_logprobs=request.top_logprobs if has_logprobs else None,
    )
    item_options = ItemOptions(
        names=tools.parts,
        summarises=reasoning is not None and bool(reasoning.summary or reasoning.generate_summary),
        seals=SEALED_REASONING in include,
    )
    return ChatRequest(chat, Origins(paths, tools.paths), item_options)


def _format(request: ResponsesRequest) -> ResponseFormat | None:
    wanted = None if request.text is None else request.text.format
    match wanted:
        case TextJsonSchema(schema=None):
            raise missing("text.format.schema")
        case TextJsonSchema():
            return JsonSchemaFormat(
                json_schema=JsonSchemaSpec(
                    name=wanted.name,
                    description=wanted.description,
                    schema=wanted.schema,
                    strict=wanted.strict,
                )
            )
        case JsonObjectFormat():
            return wanted
        case _:
            return None


def _refuse_unsupported(request: ResponsesRequest) -> None:
    """Raise InvalidRequest naming the first field that this server does not support."""
    reasoning = request.reasoning
    given = {
        "background": request.background,
        "conversation": request.conversation,
        "prompt": request.prompt,
        "context_management": request.context_management,
        "moderation": request.moderation,
        "reasoning.mode": reasoning and reasoning.mode not in (None, "standard"),
        "reasoning.context": reasoning and reasoning.context not in (None, "auto"),
    }
    for name, is_given in given.items():
        if is_given:
            raise unsupported(name, "this is")
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest(
            "stream_options is only allowed when stream is true.", param="stream_options"
        )


NewJob = Callable[[ChatCompletionRequest], Job]


def fitting_job(new_job: NewJob, request: ChatCompletionRequest) -> Job:
    """The job without the oldest turns of the user, as few as possible, so that the rest fits.

    Instructions stay. Raises ContextLengthExceeded if the last turn alone is too long.
    """
    starts = [i for i, message in enumerate(request.messages) if isinstance(message, UserMessage)]
    try:
        return new_job(request)
    except ContextLengthExceeded:
        if len(starts) < 2:
            raise
    found: Job | None = None
    low, high = 1, len(starts) - 1
    while low <= high:
        middle = (low + high) // 2
        try:
            found = new_job(_from(request, starts[middle]))
            high = middle - 1
        except ContextLengthExceeded:
            if middle == len(starts) - 1:
                raise
            low = middle + 1
    assert found is not None
    return found


def _from(request: ChatCompletionRequest, start: int) -> ChatCompletionRequest:
    """The request with the messages from ``start`` on, and all instructions."""
    kept = [
        message
        for i, message in enumerate(request.messages)
        if i >= start or isinstance(message, SystemMessage | DeveloperMessage)
    ]
    return msgspec.structs.replace(request, messages=kept)


def translate_response(request: ResponsesRequest, model: ServedModel, shelf: Shelf) -> Job:
    """The job of a response. Raises InvalidRequest naming the client's field."""
    check_nesting(request)
    conversation = shelf.conversation(request)
    chat = chat_request(request, conversation.items())
    keep = shelf.keeper(request, conversation)
    new_renderer = renderer_of(request, model, chat.item_options, keep)
    job = partial(chat_job, model=model, id_prefix="resp_", new_renderer=new_renderer)
    with named_by_client(chat.origins):
        found = (
            fitting_job(job, chat.request) if request.truncation == "auto" else job(chat.request)
        )
    if found.new_grammars is not None:
        found.new_grammars.rename_params(chat.origins.path)
    return found
