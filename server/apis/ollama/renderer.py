"""OllamaRenderer: answers of /api/chat and /api/generate, as lines of JSON or one object."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import UNSET

from core.contract.messages import SampledLogprob, StepOutput
from schemas import ollama_answer as wire
from server.apis.ollama.models import time_text
from server.http.apis import NDJSON
from server.parsers.base import (
    CallArguments,
    CallBegin,
    Content,
    Delta,
    ParsedCall,
    Reasoning,
    fold,
)
from server.rendering import sse
from server.rendering.base import ChatOptions, ChoiceDeltas, Envelope, Renderer, arguments_object
from server.rendering.logprobs import chat_logprobs, token_names

NewLine: TypeAlias = Callable[..., wire.OllamaAnswer]
"""Makes an answer, or a line of one, from a message or a part of one and the other fields."""

_EMPTY = wire.OllamaAnswerMessage()


def chat_line(message: wire.OllamaAnswerMessage, **fields: Any) -> wire.OllamaAnswer:
    """A line of /api/chat."""
    return wire.OllamaChatAnswer(message=message, **fields)


def generate_line(message: wire.OllamaAnswerMessage, **fields: Any) -> wire.OllamaAnswer:
    """A line of /api/generate, which knows no calls."""
    content, thinking = message.content, message.thinking
    return wire.OllamaGenerateAnswer(response=content, thinking=thinking, **fields)


def encoded_line(
    new_line: NewLine, model: str, message: wire.OllamaAnswerMessage = _EMPTY, **fields: Any
) -> bytes:
    """A line of an answer, which is made now."""
    line = new_line(message, model=model, created_at=time_text(time.time()), **fields)
    return msgspec.json.encode(line) + b"\n"


class OllamaRenderer(Renderer):
    """A call is sent when it is complete.

    Nobody knows the time of a whole answer's first token, so its ``eval_duration`` contains the
    prompt's.
    """

    media_type: ClassVar[str] = NDJSON

    def __init__(self, envelope: Envelope, options: ChatOptions, *, new_line: NewLine) -> None:
        self._envelope = envelope
        self._deltas = ChoiceDeltas(options)
        self._new_line = new_line
        self._name = token_names(envelope.tokenizer, as_ids=False)
        self._start = time.perf_counter_ns()
        self._first: int | None = None
        self._begun: CallBegin | None = None
        self._arguments: list[str] = []
        self._entries: list[SampledLogprob] = []
        self._template: sse.Template | None = None

    @property
    def keep_alive(self) -> bytes:
        """A line without text: clients decode every line."""
        return self._encoded()

    def feed(self, _index: int, output: StepOutput) -> bytes:
        if self._first is None:
            self._first = time.perf_counter_ns()
        if self._template is not None and output.finish_reason is None:
            return self._template.fill(output.text) if output.text else b""
        self._entries += output.logprobs
        data = b"".join([self._piece(delta) for delta in self._deltas.feed(output)])
        if self._deltas.is_plain and self._envelope.num_top is None and output.text:
            # All further output is text.
            piece = wire.OllamaAnswerMessage(content=sse.PLACEHOLDER)
            self._template = sse.Template(self._encoded(piece))
        if output.finish_reason is not None:
            data += self._call() + self._line(**self._summary(output))
        return data

    def error(self, message: str, _cause: Exception | None = None) -> bytes:
        """The line that ends a stream with an error."""
        return msgspec.json.encode(wire.OllamaError(error=message)) + b"\n"

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        [output] = outputs
        self._entries += output.logprobs
        message = fold(self._deltas.feed(output))
        whole = wire.OllamaAnswerMessage(
            content=message.content or "",
            thinking=message.reasoning or UNSET,
            tool_calls=[_call(i, call) for i, call in enumerate(message.calls)] or UNSET,
        )
        return self._line(whole, **self._summary(output))

    def _piece(self, delta: Delta) -> bytes:
        match delta:
            case CallBegin():
                before, self._begun = self._call(), delta
                return before
            case CallArguments(_, text):
                self._arguments.append(text)
                return b""
            case Reasoning(text):
                return self._line(wire.OllamaAnswerMessage(thinking=text))
            case Content(text):
                return self._call() + self._line(wire.OllamaAnswerMessage(content=text))

    def _call(self) -> bytes:
        """The line of the call that is complete now, if there is one."""
        begun, arguments = self._begun, "".join(self._arguments)
        if begun is None:
            return b""
        self._begun, self._arguments = None, []
        call = ParsedCall(begun.id, begun.name, arguments)
        return self._line(wire.OllamaAnswerMessage(tool_calls=[_call(begun.index, call)]))

    def _line(self, message: wire.OllamaAnswerMessage = _EMPTY, **fields: Any) -> bytes:
        """A line with the log-probabilities that were not sent yet."""
        return self._encoded(message, logprobs=self._logprobs(), **fields)

    def _encoded(self, message: wire.OllamaAnswerMessage = _EMPTY, **fields: Any) -> bytes:
        fields.setdefault("done", False)
        return encoded_line(self._new_line, self._envelope.head.model, message, **fields)

    def _summary(self, output: StepOutput) -> dict[str, Any]:
        """The fields of the last line."""
        end = time.perf_counter_ns()
        prompt = 0 if self._first is None else self._first - self._start
        return {
            "done": True,
            "done_reason": output.finish_reason,
            "total_duration": end - self._start,
            "load_duration": 0,
            "prompt_eval_count": sum(map(len, self._envelope.prompts)),
            "prompt_eval_duration": prompt,
            "eval_count": output.num_output_tokens,
            "eval_duration": end - self._start - prompt,
            "warnings": self._envelope.shown_warnings,
        }

    def _logprobs(self) -> Any:
        """A list of log-probabilities, or UNSET."""
        num_top = self._envelope.num_top
        if num_top is None or not self._entries:
            return UNSET
        entries, self._entries = self._entries, []
        return chat_logprobs(entries, self._envelope.tokenizer, self._name, num_top).content


def _call(index: int, call: ParsedCall) -> wire.OllamaAnswerCall:
    arguments = arguments_object(call.arguments)
    function = wire.OllamaCalledFunction(index=index, name=call.name, arguments=arguments)
    return wire.OllamaAnswerCall(id=call.id, function=function)
