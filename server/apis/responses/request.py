"""translate_response: a request for a response to a Job. Runs in a worker thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from core.contract.errors import ContextLengthExceeded, InvalidRequest
from schemas.chat import ChatCompletionRequest
from schemas.formats import JsonObjectFormat, JsonSchemaFormat, JsonSchemaSpec, ResponseFormat
from schemas.messages import DeveloperMessage, SystemMessage, UserMessage
from schemas.responses_request import ResponsesRequest, TextJsonSchema
from server.apis.responses.conversation import Conversation, Tools
from server.apis.responses.errors import client_path, named_by_client, unsupported
from server.apis.responses.renderer import ResponsesRenderer
from server.apis.responses.store import Shelf
from server.generation.job import Job
from server.generation.model import ServedModel
from server.http.decoding import check_nesting
from server.http.errors import missing
from server.translation.chat import chat_job

LOGPROBS = "message.output_text.logprobs"

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


def translate_response(request: ResponsesRequest, model: ServedModel, shelf: Shelf) -> Job:
    """The job of a response. Raises InvalidRequest naming the client's field."""
    check_nesting(request)
    items = shelf.items(request)
    _refuse_unsupported(request)
    tools = Tools.of(request)
    conversation = Conversation(items, tools)
    if request.instructions:
        conversation.messages.insert(0, SystemMessage(content=request.instructions))
        conversation.paths.insert(0, "instructions")
    if not conversation.messages:
        raise missing("input")
    chat = _chat_request(request, conversation, tools)
    new_renderer = partial(
        ResponsesRenderer,
        request=request,
        model=model,
        names={joined: parts for parts, joined in tools.names.items()},
        keep=shelf.keeper(request, items),
    )
    new_job = partial(chat_job, model=model, id_prefix="resp_", new_renderer=new_renderer)
    path_of = partial(client_path, messages=conversation.paths, tools=tools.paths)
    with named_by_client(path_of):
        job = fitting_job(new_job, chat) if request.truncation == "auto" else new_job(chat)
    job.new_grammars.rename_params(path_of)
    return job


def _chat_request(
    request: ResponsesRequest, conversation: Conversation, tools: Tools
) -> ChatCompletionRequest:
    """The chat request with the same meaning. Raises InvalidRequest."""
    fields: dict[str, Any] = {name: getattr(request, name) for name in SAME_FIELDS}
    has_logprobs = LOGPROBS in (request.include or ()) or bool(request.top_logprobs)
    return ChatCompletionRequest(
        **fields,
        messages=conversation.messages,
        max_completion_tokens=request.max_output_tokens,
        tools=tools.functions or None,
        tool_choice=tools.choice(request),
        response_format=_format(request),
        reasoning_effort=None if request.reasoning is None else request.reasoning.effort,
        logprobs=has_logprobs or None,
        top_logprobs=request.top_logprobs if has_logprobs else None,
    )


def _format(request: ResponsesRequest) -> ResponseFormat | None:
    match request.text and request.text.format:
        case TextJsonSchema(schema=None):
            raise missing("text.format.schema")
        case TextJsonSchema() as wanted:
            schema = JsonSchemaSpec(**msgspec.structs.asdict(wanted))
            return JsonSchemaFormat(json_schema=schema)
        case JsonObjectFormat() as wanted:
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


def fitting_job(
    new_job: Callable[[ChatCompletionRequest], Job], request: ChatCompletionRequest
) -> Job:
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

    def job_from(start: int) -> Job:
        kept = [
            message
            for i, message in enumerate(request.messages)
            if i >= start or isinstance(message, SystemMessage | DeveloperMessage)
        ]
        return new_job(msgspec.structs.replace(request, messages=kept))

    def fits(start: int) -> bool:
        nonlocal found
        try:
            found = job_from(start)
        except ContextLengthExceeded:
            return False
        return True

    bisect_left(starts[1:-1], True, key=fits)
    return found or job_from(starts[-1])
