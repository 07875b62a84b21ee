"""Chat completions: chunks of a stream, or one object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, assert_never

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from core.contract.messages import EngineRequest, StepOutput, TokenLogprob
from core.contract.params import Thinking
from core.text.tokenizer import Tokenizer
from schemas.chat import ChatChoice, ChatCompletion, ChatMessage, FinishReason
from schemas.chat_chunk import (
    ChatChunkChoice,
    ChatCompletionChunk,
    ChatDelta,
    FunctionCallDelta,
    ToolCallDelta,
)
from schemas.logprobs import ChatLogprobs
from schemas.tools import FunctionCall, ToolCall
from server import sse
from server.parsers.base import CallArguments, CallBegin, Content, Delta, Reasoning
from server.parsers.chain import ChoiceParser, fold
from server.render.base import EventRenderer, Head, UsageCounter
from server.render.logprobs import TokenName, chat_logprobs, prompt_logprobs
from server.render.thinking import ThinkingCounter


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """What the request asked to see.

    ``num_top`` is None where no log-probabilities were asked for. ``new_parser`` makes what parts
    thinking and calls from the text of one choice; None where text is all there can be.
    ``call_finish_reason`` is the honest end of an answer that makes calls.
    """

    num_choices: int
    num_top: int | None = None
    num_prompt_top: int | None = None
    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False
    new_parser: Callable[[], ChoiceParser] | None = None
    may_call: bool = False
    call_finish_reason: Literal["stop", "tool_calls"] = "tool_calls"
    shows_reasoning: bool = True
    thinking: Thinking | None = None


@dataclass(slots=True)
class _Choice:
    """How far one streamed choice has come.

    ``rest`` is what all further text goes into, once there is nothing left to part it from.
    """

    parser: ChoiceParser | None
    rest: sse.Template | None = None
    has_calls: bool = False
    logprobs: list[TokenLogprob] = field(default_factory=list)  # not sent yet
    token_ids: list[int] = field(default_factory=list)  # not sent yet


class ChatRenderer(EventRenderer):
    """See StreamRenderer and WholeRenderer. Event loop only."""

    def __init__(
        self,
        head: Head,
        wanted: ChatFormat,
        requests: Sequence[EngineRequest],
        tokenizer: Tokenizer,
        name: TokenName,
    ) -> None:
        thinking = wanted.thinking
        super().__init__(
            head.of(ChatCompletionChunk),
            UsageCounter.of(
                requests,
                wanted.num_choices,
                None
                if thinking is None
                else lambda: ThinkingCounter(thinking, tokenizer.token_bytes),
            ),
            include_usage=wanted.include_usage,
            continuous=wanted.continuous_usage,
        )
        self._head = head
        self._format = wanted
        self._requests = requests
        self._tokenizer = tokenizer
        self._name = name
        self._only_text_differs = not (
            wanted.num_top is not None or wanted.return_token_ids or self._continuous
        )
        self._choices = [_Choice(wanted.new_parser and wanted.new_parser()) for _ in requests]

    def begin(self) -> bytes:
        """The role chunk of every choice, in order: clients expect indexes to ascend.

        Its content is null where the answer may turn out to be calls and nothing else.
        """
        return b"".join(
            self._chunk(
                index,
                ChatDelta(
                    role="assistant", content=None if self._format.may_call else "", refusal=None
                ),
                logprobs=None if self._format.num_top is None else ChatLogprobs(content=[]),
                prompt_token_ids=list(request.prompt_token_ids)
                if self._format.return_token_ids and index == 0
                else UNSET,
            )
            for index, request in enumerate(self._requests)
        )

    def feed(self, index: int, output: StepOutput) -> bytes:
        """Chunks for what is new, and the finish chunk at the end.

        Log-probabilities and token ids go with the first chunk that follows them; what is left
        of them at the end goes with the finish chunk.
        """
        self._counter.count(index, output)
        choice = self._choices[index]
        if choice.rest is not None and output.finish_reason is None:
            return choice.rest.fill(output.text) if output.text else b""
        if not self._only_text_differs:
            choice.logprobs += output.logprobs
            choice.token_ids += output.token_ids
        data = b"".join([self._delta_chunk(index, delta) for delta in self._deltas(choice, output)])
        if choice.parser is None or choice.parser.is_transparent:
            choice.rest = self._templates.get((index, Content))
        if output.finish_reason is not None:
            data += self._chunk(
                index,
                ChatDelta(),
                logprobs=self._pending_logprobs(choice) if choice.logprobs else None,
                finish_reason=self._finish_reason(output, has_calls=choice.has_calls),
                stop_reason=_stop_reason(output),
                token_ids=self._pending_token_ids(choice),
            )
        return data

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        """The whole object."""
        wanted, first = self._format, outputs[0]
        for index, output in enumerate(outputs):
            self._counter.count(index, output)
        return msgspec.json.encode(
            self._head.of(ChatCompletion)(
                choices=[self._choice(index, output) for index, output in enumerate(outputs)],
                usage=self._counter.usage(),
                prompt_logprobs=UNSET
                if wanted.num_prompt_top is None
                else prompt_logprobs(
                    first.prompt_logprobs or (), self._tokenizer, wanted.num_prompt_top
                ),
                prompt_token_ids=list(self._requests[0].prompt_token_ids)
                if wanted.return_token_ids
                else UNSET,
            )
        )

    def _deltas(self, choice: _Choice, output: StepOutput) -> list[Delta]:
        """The parts of the new text that the client is to see."""
        if choice.parser is None:
            return [Content(output.text)] if output.text else []
        deltas = choice.parser.feed(output.text)
        if output.is_last:
            deltas += choice.parser.finish()
        if self._format.shows_reasoning:
            return deltas
        return [delta for delta in deltas if not isinstance(delta, Reasoning)]

    def _delta_chunk(self, index: int, delta: Delta) -> bytes:
        choice = self._choices[index]
        if isinstance(delta, CallBegin):
            choice.has_calls = True
            self._templates.pop((index, CallArguments), None)  # it has the index of the call
        elif self._only_text_differs:
            return self._filled(
                (index, type(delta)),
                delta.text,
                lambda text: self._chunk(index, _wire_delta(replace(delta, text=text))),
            )
        return self._chunk(
            index,
            _wire_delta(delta),
            logprobs=self._pending_logprobs(choice),
            token_ids=self._pending_token_ids(choice),
        )

    def _choice(self, index: int, output: StepOutput) -> ChatChoice:
        message = fold(self._deltas(self._choices[index], output))
        calls = [
            ToolCall(id=call.id, function=FunctionCall(name=call.name, arguments=call.arguments))
            for call in message.calls
        ]
        return ChatChoice(
            index=index,
            message=ChatMessage(
                role="assistant",
                content=message.content,
                reasoning_content=message.reasoning or UNSET,
                reasoning=message.reasoning or UNSET,
                tool_calls=calls or UNSET,
            ),
            logprobs=self._logprobs(output.logprobs),
            finish_reason=self._finish_reason(output, has_calls=bool(calls)),
            stop_reason=_stop_reason(output),
            token_ids=list(output.token_ids) if self._format.return_token_ids else UNSET,
        )

    def _finish_reason(self, output: StepOutput, *, has_calls: bool) -> FinishReason:
        """A cut answer says so before all else; calls come before an ordinary end."""
        assert output.finish_reason is not None
        if has_calls and output.finish_reason == "stop":
            return self._format.call_finish_reason
        return output.finish_reason

    def _pending_logprobs(self, choice: _Choice) -> ChatLogprobs | None:
        entries, choice.logprobs = choice.logprobs, []
        return self._logprobs(entries)

    def _pending_token_ids(self, choice: _Choice) -> list[int] | UnsetType:
        token_ids, choice.token_ids = choice.token_ids, []
        return token_ids if self._format.return_token_ids else UNSET

    def _logprobs(self, entries: Sequence[TokenLogprob]) -> ChatLogprobs | None:
        if self._format.num_top is None:
            return None
        return chat_logprobs(entries, self._tokenizer, self._name, self._format.num_top)

    def _chunk(
        self,
        index: int,
        delta: ChatDelta,
        *,
        logprobs: ChatLogprobs | None = None,
        finish_reason: FinishReason | None = None,
        stop_reason: str | int | UnsetType = UNSET,
        token_ids: list[int] | UnsetType = UNSET,
        prompt_token_ids: list[int] | UnsetType = UNSET,
    ) -> bytes:
        choice = ChatChunkChoice(
            index=index,
            delta=delta,
            logprobs=logprobs,
            finish_reason=finish_reason,
            stop_reason=stop_reason,
            token_ids=token_ids,
        )
        return self._frame(choice, prompt_token_ids=prompt_token_ids)


def _wire_delta(delta: Delta) -> ChatDelta:
    """A parser's delta in OpenAI's form; thinking under both names that clients look for."""
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


def _stop_reason(output: StepOutput) -> str | int | UnsetType:
    """Present only where something other than the model's end token stopped it."""
    return UNSET if output.stop_reason is None else output.stop_reason
