"""POST /v1/chat/completions: the translation to a Job, in a worker thread, and its renderers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from core.contract.messages import SampledLogprob, StepOutput
from schemas.chat import (
    ChatChoice,
    ChatCompletion,
    ChatCompletionRequest,
    ChatMessage,
    FinishReason,
)
from schemas.chat_chunk import (
    ChatChunkChoice,
    ChatCompletionChunk,
    ChatDelta,
    FunctionCallDelta,
    ToolCallDelta,
)
from schemas.logprobs import ChatLogprobs
from schemas.tools import FunctionCall, ToolCall
from server.apis.openai.events import EventRenderer, stop_reason
from server.generation.job import Job
from server.generation.model import ServedModel
from server.parsers.base import CallArguments, CallBegin, Content, Delta, Reasoning, fold
from server.rendering.base import ChatOptions, ChoiceDeltas, Envelope
from server.rendering.logprobs import SLICE, chat_logprobs, encoded_list
from server.rendering.sse import Template
from server.translation.chat import chat_job
from server.translation.tools import with_tools


@dataclass(slots=True)
class _Choice:
    """State of one choice.

    ``template`` is set once all further text is content: it makes the remaining chunks.
    ``logprobs`` and ``token_ids`` have not been sent yet.
    """

    deltas: ChoiceDeltas
    template: Template | None = None
    logprobs: list[SampledLogprob] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)


class ChatRenderer(EventRenderer):
    """Chat completions. Event loop only."""

    def __init__(self, envelope: Envelope, options: ChatOptions) -> None:
        super().__init__(envelope, ChatCompletionChunk)
        self._options = options
        self._choices = [_Choice(ChoiceDeltas(options)) for _ in range(envelope.num_choices)]

    def begin(self) -> bytes:
        """The role chunk of every choice, in order: clients expect ascending indexes.

        Its content is null if the message may consist of tool calls only.
        """
        content = "" if self._options.new_parser is None else None
        prompt = self._envelope.prompts[0]
        return b"".join(
            self._chunk(
                index,
                ChatDelta(role="assistant", content=content, refusal=None),
                logprobs=None if self._envelope.num_top is None else ChatLogprobs(content=[]),
                prompt_token_ids=self._token_ids(prompt) if index == 0 else UNSET,
            )
            for index in range(len(self._choices))
        )

    def feed(self, index: int, output: StepOutput) -> bytes:
        """Chunks for the new text, and the finish chunk, with what was not sent, at the end."""
        choice = self._choices[index]
        if choice.template is not None and output.finish_reason is None:  # the last one has totals
            return choice.template.fill(output.text) if output.text else b""
        self._counter.count(index, output)
        if not self._only_text_differs:
            choice.logprobs += output.logprobs
            choice.token_ids += output.token_ids
        data = b"".join([self._delta_chunk(index, delta) for delta in choice.deltas.feed(output)])
        if choice.deltas.is_plain:
            choice.template = self._templates.get((index, Content))
        if output.finish_reason is not None:
            data += self._chunk(
                index,
                ChatDelta(),
                logprobs=self._logprobs(choice.logprobs) if choice.logprobs else None,
                finish_reason=self._finish_reason(choice.deltas, output),
                stop_reason=stop_reason(output),
                token_ids=self._token_ids(choice.token_ids),
                warnings=self._envelope.shown_warnings,
            )
        return data

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        usage = self._total_usage(outputs)
        choices = (self._choice(i, output) for i, output in enumerate(outputs))
        return msgspec.json.encode(
            self._envelope.head.of(ChatCompletion)(
                choices=encoded_list(choices, weight=SLICE),
                usage=usage,
                prompt_logprobs=self._prompt_logprobs(outputs[0]),
                prompt_token_ids=self._token_ids(self._envelope.prompts[0]),
                warnings=self._envelope.shown_warnings,
            )
        )

    def _delta_chunk(self, index: int, delta: Delta) -> bytes:
        choice = self._choices[index]
        if isinstance(delta, CallBegin):
            self._templates.pop((index, CallArguments), None)  # it contains the call's index
        elif self._only_text_differs:
            return self._filled(
                (index, type(delta)),
                delta.text,
                lambda text: self._chunk(
                    index, self._delta(msgspec.structs.replace(delta, text=text))
                ),
            )
        entries, choice.logprobs = choice.logprobs, []
        token_ids, choice.token_ids = choice.token_ids, []
        return self._chunk(
            index,
            self._delta(delta),
            logprobs=self._logprobs(entries),
            token_ids=self._token_ids(token_ids),
        )

    def _choice(self, index: int, output: StepOutput) -> ChatChoice:
        deltas = self._choices[index].deltas
        message = self._message(deltas.feed(output))
        return ChatChoice(
            index=index,
            message=message,
            logprobs=self._logprobs(output.logprobs),
            finish_reason=self._finish_reason(deltas, output),
            stop_reason=stop_reason(output),
            token_ids=self._token_ids(output.token_ids),
        )

    def _delta(self, delta: Delta) -> ChatDelta:
        """One delta of a stream. Reasoning gets both field names that clients read."""
        match delta:
            case Content(text):
                return ChatDelta(content=text)
            case Reasoning(text):
                return ChatDelta(reasoning_content=text, reasoning=text)
            case CallBegin(index, call_id, name):
                function = FunctionCallDelta(name=name, arguments="")
                call = ToolCallDelta(index=index, id=call_id, type="function", function=function)
                return ChatDelta(tool_calls=[call])
            case CallArguments(index, text):
                function = FunctionCallDelta(arguments=text)
                return ChatDelta(tool_calls=[ToolCallDelta(index=index, function=function)])
            case _:
                assert_never(delta)

    def _message(self, deltas: Iterable[Delta]) -> ChatMessage:
        """The message of a response that is not streamed."""
        message = fold(deltas)
        calls = [
            ToolCall(id=call.id, function=FunctionCall(name=call.name, arguments=call.arguments))
            for call in message.calls
        ]
        return ChatMessage(
            role="assistant",
            content=message.content,
            reasoning_content=message.reasoning or UNSET,
            reasoning=message.reasoning or UNSET,
            tool_calls=calls or UNSET,
        )

    def _finish_reason(self, deltas: ChoiceDeltas, output: StepOutput) -> FinishReason:
        return deltas.finish_reason(output)

    def _logprobs(self, entries: Sequence[SampledLogprob]) -> ChatLogprobs | None:
        num_top = self._envelope.num_top
        if num_top is None:
            return None
        return chat_logprobs(entries, self._envelope.tokenizer, self._name, num_top)

    def _chunk(
        self,
        index: int,
        delta: ChatDelta,
        *,
        prompt_token_ids: list[int] | UnsetType = UNSET,
        warnings: list[str] | UnsetType = UNSET,
        **fields: Any,
    ) -> bytes:
        """The event of a choice with this delta and these ``fields``."""
        choice = ChatChunkChoice(index=index, delta=delta, **fields)
        return self._frame(choice, prompt_token_ids=prompt_token_ids, warnings=warnings)


class FunctionRenderer(ChatRenderer):
    """Chat completions with the older field ``function_call``. A choice has at most one call."""

    def _delta(self, delta: Delta) -> ChatDelta:
        return _with_function_call(super()._delta(delta))

    def _message(self, deltas: Iterable[Delta]) -> ChatMessage:
        return _with_function_call(super()._message(deltas))

    def _finish_reason(self, deltas: ChoiceDeltas, output: StepOutput) -> FinishReason:
        reason = super()._finish_reason(deltas, output)
        return "function_call" if reason == "tool_calls" else reason


M = TypeVar("M", ChatDelta, ChatMessage)


def _with_function_call(part: M) -> M:
    """The same with its call, if it has one, in the older field."""
    if part.tool_calls is UNSET:
        return part
    call = part.tool_calls[0].function
    return msgspec.structs.replace(part, tool_calls=UNSET, function_call=call)


def translate_chat(request: ChatCompletionRequest, model: ServedModel) -> Job:
    """The job of a chat completion. Raises InvalidRequest."""
    new_renderer = FunctionRenderer if request.functions else ChatRenderer
    return chat_job(with_tools(request), model, id_prefix="chatcmpl-", new_renderer=new_renderer)
