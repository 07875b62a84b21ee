"""ResponsesRenderer: a response of POST /v1/responses, streamed or whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from core.contract.messages import SampledLogprob, StepOutput
from schemas import responses as wire
from schemas import responses_events as events
from schemas import responses_request as asked
from schemas.formats import JsonObjectFormat
from schemas.logprobs import TokenLogprob
from server.apis.responses.output import Names, Output
from server.generation.model import ServedModel
from server.http.errors import stream_error
from server.rendering import sse
from server.rendering.base import (
    AnswerHead,
    ChatOptions,
    ChoiceDeltas,
    Envelope,
    Renderer,
    UsageCounter,
    weight_of,
)
from server.rendering.logprobs import chat_logprobs, token_names

ECHO_SPEED = 500
"""Bytes of the encoded response that are copied into an event in a microsecond."""


class ResponsesRenderer(Renderer):
    """The response repeats what the request says: in two first events and in the last one.

    ``keep`` gets the response when it is complete or was cut. The thread that renders calls it.
    """

    keep_alive: ClassVar[bytes] = sse.COMMENT

    def __init__(
        self,
        envelope: Envelope,
        chat_options: ChatOptions,
        *,
        request: asked.ResponsesRequest,
        model: ServedModel,
        names: Names,
        keep: Callable[[wire.Response], None] | None,
    ) -> None:
        self._envelope, self._keep = envelope, keep
        self._response = begun_response(request, envelope.head, model, is_kept=keep is not None)
        self._deltas = ChoiceDeltas(chat_options)
        self._counter = UsageCounter(1, sum(map(len, envelope.prompts)))
        self._name = token_names(envelope.tokenizer, as_ids=envelope.tokens_as_ids)
        self._num_entries = 0
        self._is_plain = self._deltas.is_plain and envelope.num_top is None
        self._weight = 0  # of all outputs so far
        self._echo_weight = len(msgspec.json.encode(self._response)) // ECHO_SPEED
        self._has_begun = False
        self._next_number = count().__next__
        self._output = Output(request, names, self._next_number, self._wire_logprobs)

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
        error = wire.ResponseError(message=stream_error(message).message)
        failed = self._with_output(status="failed", error=error)
        return data + self._lifecycle(events.ResponseFailed, failed) + sse.DONE

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        [output] = outputs
        for _ in self._events(output):
            pass
        return msgspec.json.encode(self._ended(output))

    def _events(self, output: StepOutput) -> Iterable[events.ResponseEvent]:
        self._counter.count(0, output)
        entries = self._logprobs_of_answer(output)
        yield from self._output.feed(self._deltas.feed(output), entries)
        if output.finish_reason is not None:
            yield from self._output.end(is_cut=output.finish_reason == "length")

    def _ended(self, output: StepOutput) -> wire.Response:
        is_cut = output.finish_reason == "length"
        response = self._with_output(
            status="incomplete" if is_cut else "completed",
            incomplete_details=wire.IncompleteDetails() if is_cut else None,
            completed_at=None if is_cut else int(time.time()),
            warnings=self._envelope.shown_warnings,
        )
        if self._keep is not None:
            self._keep(response)
        return response

    def _with_output(self, **fields: Any) -> wire.Response:
        """The response with its items and usage so far."""
        return replace(self._response, output=[*self._output.items], usage=self._usage(), **fields)

    def _usage(self) -> wire.ResponseUsage:
        usage = self._counter.usage()
        prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
        assert prompt
        assert completion
        return wire.ResponseUsage(
            input_tokens=usage.prompt_tokens,
            input_tokens_details=wire.ResponseInputDetails(cached_tokens=prompt.cached_tokens),
            output_tokens=usage.completion_tokens,
            output_tokens_details=wire.ResponseOutputDetails(
                reasoning_tokens=completion.reasoning_tokens
            ),
            total_tokens=usage.total_tokens,
        )

    def _logprobs_of_answer(self, output: StepOutput) -> Sequence[SampledLogprob]:
        """The log-probabilities of the answer in an output. Thinking comes before it."""
        if self._envelope.num_top is None:
            return ()
        num_thinking = max(output.num_thinking_tokens - self._num_entries, 0)
        self._num_entries += len(output.logprobs)
        return output.logprobs[num_thinking:]

    def _wire_logprobs(self, entries: Sequence[SampledLogprob]) -> list[TokenLogprob]:
        """The entries in the form of the API; [] if the request wants none."""
        num_top = self._envelope.num_top
        if num_top is None or not entries:
            return []
        shown = chat_logprobs(entries, self._envelope.tokenizer, self._name, num_top)
        return shown.content or []

    def _lifecycle(
        self, kind: Callable[..., events.LifecycleEvent], response: wire.Response
    ) -> bytes:
        return _frames([kind(sequence_number=self._next_number(), response=response)])


def _frames(stream: Iterable[events.ResponseEvent]) -> bytes:
    return b"".join([sse.named_frame(events.name_of(event), event) for event in stream])


_REPEATED = (
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "safety_identifier",
    "user",
)
_SAMPLING = {"temperature": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "top_p": 1.0}
"""Fields with their values where neither the request nor the model says one."""


def begun_response(
    request: asked.ResponsesRequest, head: AnswerHead, model: ServedModel, *, is_kept: bool
) -> wire.Response:
    """In progress, without items. Fields that the request leaves out show their defaults.

    Those that may be large are JSON already: the response is encoded several times.
    """
    sampling = _SAMPLING | model.info.default_sampling
    fields: dict[str, Any] = {name: getattr(request, name) for name in _REPEATED}
    for name in _SAMPLING:
        given = getattr(request, name)
        fields[name] = float(sampling[name]) if given is None else given
    reasoning = request.reasoning or asked.ReasoningOptions()
    summary = reasoning.summary or reasoning.generate_summary
    return wire.Response(
        **fields,
        id=head.id,
        created_at=head.created,
        status="in_progress",
        instructions=_encoded(request.instructions),
        model=head.model,
        output=[],
        parallel_tool_calls=request.parallel_tool_calls is not False,
        reasoning=wire.ResponseReasoning(effort=reasoning.effort, summary=summary),
        store=is_kept,
        text=_encoded(_text(request)),
        tool_choice=_encoded(_choice(request)),
        tools=_encoded(_tools(request)),
        top_logprobs=request.top_logprobs or 0,
        truncation=request.truncation or "disabled",
        metadata=_encoded(request.metadata or {}),
    )


def _encoded(value: Any) -> Any:
    return msgspec.Raw(msgspec.json.encode(value))


def _text(request: asked.ResponsesRequest) -> wire.ResponseText:
    text = request.text or asked.TextOptions()
    shown: dict[str, Any] = {"type": "text"}
    match text.format:
        case asked.TextJsonSchema() as wanted:
            shown = msgspec.to_builtins(wanted) | {"strict": bool(wanted.strict)}
        case JsonObjectFormat():
            shown = {"type": "json_object"}
    return wire.ResponseText(format=shown, verbosity=text.verbosity or UNSET)


def _choice(request: asked.ResponsesRequest) -> str | wire.NamedFunction | wire.AllowedFunctions:
    choice = request.tool_choice
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    if choice.type == "function":
        return wire.NamedFunction(name=choice.name or "")
    allowed = [wire.NamedFunction(name=tool.name or "") for tool in choice.tools or ()]
    return wire.AllowedFunctions(mode=choice.mode or "auto", tools=allowed)


def _tools(request: asked.ResponsesRequest) -> list[wire.ResponseFunction | wire.ResponseNamespace]:
    return [
        wire.ResponseNamespace(
            name=tool.name or "",
            description=tool.description or "",
            tools=[_function(inner) for inner in tool.tools or ()],
        )
        if tool.type == "namespace"
        else _function(tool)
        for tool in request.tools or ()
    ]


def _function(tool: asked.NamespacedTool) -> wire.ResponseFunction:
    return wire.ResponseFunction(
        name=tool.name or "",
        description=tool.description,
        parameters=tool.parameters,
        strict=tool.strict,
    )
