"""OllamaRenderer: answers of /api/chat and /api/generate, as lines of JSON or one object.

The two forms of Ollama's answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import UNSET

from core.contract.messages import StepOutput, TokenLogprob
from schemas.ollama_answer import (
    OllamaAnswer,
    OllamaAnswerCall,
    OllamaAnswerMessage,
    OllamaCalledFunction,
    OllamaChatAnswer,
    OllamaError,
    OllamaGenerateAnswer,
)
from server.http import sse
from server.parsers.base import (
    CallArguments,
    CallBegin,
    Content,
    Delta,
    Message,
    ParsedCall,
    Reasoning,
    fold,
)
from server.rendering.base import Envelope, weight_of
from server.rendering.deltas import ChatOptions, ChoiceDeltas, arguments_object
from server.rendering.logprobs import chat_logprobs, token_names

NewLine: TypeAlias = Callable[..., OllamaAnswer]
"""Makes an answer, or a line of one, from a message or a part of one, the number of calls before
it, and the fields that both forms have."""

NOTHING = Message(content=None, reasoning=None, calls=())


def chat_line(message: Message, num_calls: int, **fields: Any) -> OllamaAnswer:
    """A line of /api/chat."""
    return OllamaChatAnswer(
        message=OllamaAnswerMessage(
            content=message.content or "",
            thinking=message.reasoning or UNSET,
            tool_calls=_calls(message.calls, num_calls) or UNSET,
        ),
        **fields,
    )


def generate_line(message: Message, _num_calls: int, **fields: Any) -> OllamaAnswer:
    """A line of /api/generate, which knows no calls."""
    return OllamaGenerateAnswer(
        response=message.content or "", thinking=message.reasoning or UNSET, **fields
    )


def loaded_line(new_line: NewLine, model: str, reason: str) -> bytes:
    """The only line of an answer that says that the model is loaded."""
    line = new_line(NOTHING, 0, model=model, created_at=now(), done=True, done_reason=reason)
    return msgspec.json.encode(line) + b"\n"


def now() -> str:
    """The time in UTC, as Ollama writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _calls(calls: Iterable[ParsedCall], num_before: int) -> list[OllamaAnswerCall]:
    return [
        OllamaAnswerCall(
            id=call.id,
            function=OllamaCalledFunction(
                index=index, name=call.name, arguments=arguments_object(call.arguments)
            ),
        )
        for index, call in enumerate(calls, start=num_before)
    ]


class OllamaRenderer:
    """See Renderer. A call is sent when it is complete.

    Nobody knows the time of a whole answer's first token, so its ``eval_duration`` contains the
    prompt's.
    """

    media_type: ClassVar[str] = "application/x-ndjson"

    def __init__(self, envelope: Envelope, options: ChatOptions, *, new_line: NewLine) -> None:
        self._envelope = envelope
        self._deltas = ChoiceDeltas(options)
        self._new_line = new_line
        self._name = token_names(envelope.tokenizer, as_ids=False)
        self._start = time.perf_counter_ns()
        self._first: int | None = None
        self._begun: CallBegin | None = None
        self._arguments: list[str] = []
        self._num_calls = 0
        self._entries: list[TokenLogprob] = []
        self._template: sse.Template | None = None

    @property
    def keep_alive(self) -> bytes:
        """A line without text: clients decode every line."""
        return self._encoded(self._new_line(NOTHING, 0, **self._head(is_done=False)))

    def weight(self, _index: int, output: StepOutput) -> int:
        return weight_of(output)

    def begin(self) -> bytes:
        return b""

    def feed(self, _index: int, output: StepOutput) -> bytes:
        if self._first is None:
            self._first = time.perf_counter_ns()
        if self._template is not None and output.finish_reason is None:
            return self._template.fill(output.text) if output.text else b""
        self._entries += output.logprobs
        data = b"".join([self._piece(delta) for delta in self._deltas.feed(output)])
        if self._deltas.is_plain and self._envelope.num_top is None and output.text:
            self._template = self._text_template()
        if output.finish_reason is not None:
            data += self._call() + self._line(NOTHING, is_done=True, **self._summary(output))
        return data

    def end(self) -> bytes:
        return b""

    def error(self, message: str, _cause: Exception | None = None) -> bytes:
        """The line that ends a stream with an error."""
        return self._encoded(OllamaError(error=message))

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        [output] = outputs
        self._entries += output.logprobs
        message = fold(self._deltas.feed(output))
        return self._line(message, is_done=True, **self._summary(output))

    def _piece(self, delta: Delta) -> bytes:
        match delta:
            case CallBegin():
                before, self._begun = self._call(), delta
                return before
            case CallArguments(_, text):
                self._arguments.append(text)
                return b""
            case Reasoning(text):
                return self._line(Message(content=None, reasoning=text, calls=()))
            case Content(text):
                return self._call() + self._line(Message(content=text, reasoning=None, calls=()))

    def _text_template(self) -> sse.Template:
        """Makes the lines of more text, once all further output is text."""
        text = Message(content=sse.PLACEHOLDER, reasoning=None, calls=())
        return sse.Template(self._encoded(self._new_line(text, 0, **self._head(is_done=False))))

    def _call(self) -> bytes:
        """The line of the call that is complete now, if there is one."""
        if self._begun is None:
            return b""
        call = ParsedCall(self._begun.id, self._begun.name, "".join(self._arguments))
        self._begun, self._arguments = None, []
        return self._line(Message(content=None, reasoning=None, calls=(call,)))

    def _line(self, message: Message, *, is_done: bool = False, **fields: Any) -> bytes:
        """A line with the log-probabilities that were not sent yet."""
        common = self._head(is_done=is_done) | fields
        line = self._new_line(message, self._num_calls, logprobs=self._logprobs(), **common)
        self._num_calls += len(message.calls)
        return self._encoded(line)

    def _encoded(self, line: msgspec.Struct) -> bytes:
        return msgspec.json.encode(line) + b"\n"

    def _head(self, *, is_done: bool) -> dict[str, Any]:
        return {"model": self._envelope.head.model, "created_at": now(), "done": is_done}

    def _summary(self, output: StepOutput) -> dict[str, Any]:
        """The fields of the last line."""
        end = time.perf_counter_ns()
        prompt = 0 if self._first is None else self._first - self._start
        return {
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
        shown = chat_logprobs(entries, self._envelope.tokenizer, self._name, num_top).content
        return UNSET if shown is None else shown
