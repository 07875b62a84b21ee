"""The renderer of a request, and the response object that repeats the request's settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from schemas.formats import JsonObjectFormat
from schemas.responses import Response, ResponseReasoning, ResponseText
from schemas.responses_request import ResponsesRequest, TextJsonSchema
from server.render.base import Head
from server.render.chat_options import ChatOptions, NewRenderer
from server.render.envelope import Envelope
from server.render.responses.output import ItemOptions
from server.render.responses.renderer import ResponsesRenderer
from server.served_model import ServedModel
from server.translate.responses.tools import shown_choice, shown_tools


def renderer_of(
    request: ResponsesRequest,
    model: ServedModel,
    item_options: ItemOptions,
    keep: Callable[[Response], None] | None,
) -> NewRenderer:
    """A maker of the renderer. ``keep`` stores the response at its end. None: nothing does."""

    def make(envelope: Envelope, options: ChatOptions) -> ResponsesRenderer:
        response = begun_response(request, envelope.head, model, is_kept=keep is not None)
        on_end = keep or (lambda _response: None)
        return ResponsesRenderer(envelope, options, item_options, response, on_end)

    return make


def begun_response(
    request: ResponsesRequest, head: Head, model: ServedModel, *, is_kept: bool
) -> Response:
    """In progress, without items. Fields that the request leaves out show their defaults.

    Those that may be large are JSON already: the response is encoded several times.
    """
    sampling = model.info.default_sampling
    return Response(
        id=head.id,
        created_at=head.created,
        status="in_progress",
        instructions=_encoded(request.instructions),
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        model=head.model,
        output=[],
        parallel_tool_calls=request.parallel_tool_calls is not False,
        previous_response_id=request.previous_response_id,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=_reasoning(request),
        safety_identifier=request.safety_identifier,
        store=is_kept,
        temperature=_given(request.temperature, sampling.get("temperature", 1.0)),
        presence_penalty=_given(request.presence_penalty, sampling.get("presence_penalty", 0.0)),
        frequency_penalty=_given(request.frequency_penalty, sampling.get("frequency_penalty", 0.0)),
        text=_encoded(_text(request)),
        tool_choice=_encoded(shown_choice(request.tool_choice)),
        tools=_encoded(shown_tools(request)),
        top_logprobs=request.top_logprobs or 0,
        top_p=_given(request.top_p, sampling.get("top_p", 1.0)),
        truncation=request.truncation or "disabled",
        user=request.user,
        metadata=_encoded(request.metadata or {}),
    )


def _encoded(value: Any) -> Any:
    return msgspec.Raw(msgspec.json.encode(value))


def _given(value: float | None, default: Any) -> float:
    return float(default) if value is None else value


def _reasoning(request: ResponsesRequest) -> ResponseReasoning:
    options = request.reasoning
    if options is None:
        return ResponseReasoning()
    return ResponseReasoning(
        effort=options.effort, summary=options.summary or options.generate_summary
    )


def _text(request: ResponsesRequest) -> ResponseText:
    options = request.text
    shown: dict[str, Any] = {"type": "text"}
    match None if options is None else options.format:
        case TextJsonSchema() as wanted:
            shown = {
                "type": "json_schema",
                "name": wanted.name,
                "description": wanted.description,
                "schema": wanted.schema,
                "strict": bool(wanted.strict),
            }
        case JsonObjectFormat():
            shown = {"type": "json_object"}
    verbosity = None if options is None else options.verbosity
    return ResponseText(format=shown, verbosity=verbosity or UNSET)
