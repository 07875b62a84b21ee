"""ResponsesRenderer: a response of POST /v1/responses, streamed or whole.

AnswerLogprobs: log-probabilities of the answer's tokens, without those of thinking.

The response object in its later states: ended, failed.

The renderer of a request, and the response object that repeats the request's settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET, structs

from core.contract.messages import StepOutput, TokenLogprob
from schemas import responses_events as events
from schemas.formats import JsonObjectFormat
from schemas.logprobs import TokenLogprob as WireLogprob
from schemas.responses import (
    IncompleteDetails,
    Response,
    ResponseError,
    ResponseInputDetails,
    ResponseOutputDetails,
    ResponseReasoning,
    ResponseText,
    ResponseUsage,
)
from schemas.responses_items import OutputItem
from schemas.responses_request import ResponsesRequest, TextJsonSchema
from schemas.usage import Usage
from server.apis.responses.output import ItemOptions, Output
from server.apis.responses.tools import shown_choice, shown_tools
from server.generation.model import ServedModel
from server.http import sse
from server.http.errors import stream_error
from server.rendering.base import AnswerHead, Envelope, UsageCounter, weight_of
from server.rendering.deltas import ChatOptions, ChoiceDeltas, NewRenderer
from server.rendering.logprobs import chat_logprobs, token_names


class AnswerLogprobs:
    """One response's. Give it every output in order."""

    def __init__(self, envelope: Envelope) -> None:
        self._num_top, self._tokenizer = envelope.num_top, envelope.tokenizer
        self._name = token_names(envelope.tokenizer, as_ids=envelope.tokens_as_ids)
        self._num_entries = 0

    def of_answer(self, output: StepOutput) -> Sequence[TokenLogprob]:
        """Those of the output that belong to the answer. Thinking comes before it."""
        if self._num_top is None:
            return ()
        num_thinking = max(output.num_thinking_tokens - self._num_entries, 0)
        self._num_entries += len(output.logprobs)
        return output.logprobs[num_thinking:]

    def wire(self, entries: Sequence[TokenLogprob]) -> list[WireLogprob]:
        """The entries in the form of the API; [] if the request wants none."""
        if self._num_top is None or not entries:
            return []
        return chat_logprobs(entries, self._tokenizer, self._name, self._num_top).content or []


ECHO_SPEED = 500
"""Bytes of the encoded response that are copied into an event in a microsecond."""


class ResponsesRenderer:
    """See Renderer. ``response`` is the object as it begins: in progress, without items.

    The object repeats what the request says, in two events of the beginning and one of the end.
    ``on_end`` gets the response when it is complete or was cut. The thread that renders calls it.
    """

    media_type = sse.MEDIA_TYPE
    keep_alive = sse.COMMENT

    def __init__(
        self,
        envelope: Envelope,
        chat_options: ChatOptions,
        item_options: ItemOptions,
        response: Response,
        on_end: Callable[[Response], None],
    ) -> None:
        self._response, self._on_end = response, on_end
        self._envelope = envelope
        self._deltas = ChoiceDeltas(chat_options)
        self._counter = UsageCounter(1, sum(map(len, envelope.prompts)))
        self._logprobs = AnswerLogprobs(envelope)
        self._is_plain = self._deltas.is_plain and envelope.num_top is None
        self._weight = 0  # of all outputs so far
        self._echo_weight = len(msgspec.json.encode(response)) // ECHO_SPEED
        self._has_begun = False
        self._next_number = count().__next__
        self._output = Output(item_options, self._next_number, self._logprobs.wire)

    def weight(self, _index: int, output: StepOutput) -> int:
        """The events of the end repeat all that came before."""
        weight = weight_of(output)
        if not self._has_begun:
            weight += 2 * self._echo_weight
        if output.is_last:
            weight += self._weight + self._echo_weight
        return weight

    def begin(self) -> bytes:
        self._has_begun = True
        kinds = (events.ResponseCreated, events.ResponseInProgress)
        return b"".join([self._lifecycle(kind, self._response) for kind in kinds])

    def feed(self, _index: int, output: StepOutput) -> bytes:
        """Events for the new text, and at the end those that end the items and the response."""
        self._weight += weight_of(output)
        if self._is_plain and output.finish_reason is None and output.text and not output.thinking:
            frame = self._output.more_text(output.text)
            if frame is not None:
                self._counter.count(0, output)
                return frame
        data = _frames(self._events(output))
        if output.finish_reason is None:
            return data
        is_cut = output.finish_reason == "length"
        kind = events.ResponseIncomplete if is_cut else events.ResponseCompleted
        return data + self._lifecycle(kind, self._ended(output))

    def end(self) -> bytes:
        return sse.DONE

    def error(self, message: str, _cause: Exception | None = None) -> bytes:
        """The events that end an open item and the response, which has failed; the end marker."""
        data = _frames(self._output.fail())
        response = failed(self._response, self._output.items, self._counter.usage(), message)
        return data + self._lifecycle(events.ResponseFailed, response) + sse.DONE

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        [output] = outputs
        for _ in self._events(output):
            pass
        return msgspec.json.encode(self._ended(output))

    def _events(self, output: StepOutput) -> Iterable[events.ResponseEvent]:
        self._counter.count(0, output)
        entries = self._logprobs.of_answer(output)
        yield from self._output.feed(self._deltas.feed(output), entries)
        if output.finish_reason is not None:
            yield from self._output.end(is_cut=output.finish_reason == "length")

    def _ended(self, output: StepOutput) -> Response:
        response = ended(
            msgspec.structs.replace(self._response, warnings=self._envelope.shown_warnings),
            self._output.items,
            self._counter.usage(),
            is_cut=output.finish_reason == "length",
        )
        self._on_end(response)
        return response

    def _lifecycle(self, kind: Callable[..., events.LifecycleEvent], response: Response) -> bytes:
        return _frames([kind(sequence_number=self._next_number(), response=response)])


def _frames(stream: Iterable[events.ResponseEvent]) -> bytes:
    return b"".join([sse.named_frame(events.name_of(event), event) for event in stream])


def ended(
    response: Response, items: Sequence[OutputItem], usage: Usage, *, is_cut: bool
) -> Response:
    """The response at its end. ``is_cut``: a limit of tokens has ended it."""
    return structs.replace(
        response,
        status="incomplete" if is_cut else "completed",
        incomplete_details=IncompleteDetails() if is_cut else None,
        completed_at=None if is_cut else int(time.time()),
        output=list(items),
        usage=_response_usage(usage),
    )


def failed(response: Response, items: Sequence[OutputItem], usage: Usage, message: str) -> Response:
    """The response after a failure, with the items until then."""
    return structs.replace(
        response,
        status="failed",
        error=ResponseError(message=stream_error(message).message),
        output=list(items),
        usage=_response_usage(usage),
    )


def _response_usage(usage: Usage) -> ResponseUsage:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    assert prompt
    assert completion
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=ResponseInputDetails(cached_tokens=prompt.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=ResponseOutputDetails(reasoning_tokens=completion.reasoning_tokens),
        total_tokens=usage.total_tokens,
    )


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
    request: ResponsesRequest, head: AnswerHead, model: ServedModel, *, is_kept: bool
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
