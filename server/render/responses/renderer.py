"""ResponsesRenderer: a response of POST /v1/responses, streamed or whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count

import msgspec

from core.contract.messages import StepOutput
from schemas import responses_events as events
from schemas.responses import Response
from server import sse
from server.render.base import weight_of
from server.render.chat_options import ChatOptions
from server.render.deltas import ChoiceDeltas
from server.render.envelope import Envelope
from server.render.responses import states
from server.render.responses.logprobs import AnswerLogprobs
from server.render.responses.output import ItemOptions, Output
from server.render.usage import UsageCounter

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
        response = states.failed(self._response, self._output.items, self._counter.usage(), message)
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
        response = states.ended(
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
