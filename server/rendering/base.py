"""The common part of all renderers: protocol, envelope, usage, and the deltas of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from core.contract.messages import StepOutput
from core.text.tokenizer import Tokenizer
from schemas.usage import CompletionTokensDetails, PromptTokensDetails, Usage
from server.parsers.base import CallBegin, Content, Delta, Reasoning
from server.parsers.tool.parser import CallParser
from server.rendering import sse


def weight_of(output: StepOutput) -> int:
    """Estimate the work of rendering an output. One unit takes about a microsecond."""
    weight = (len(output.token_ids) + len(output.text) + len(output.thinking)) // 8
    for entries in (output.logprobs, output.prompt_logprobs):
        if entries:
            weight += (2 + len(entries[-1].top)) * len(entries)
    return weight


class Renderer(Protocol):
    """Turns the outputs of all choices of one response into its body, without I/O.

    Calls must not overlap. They may come from different threads.
    """

    @property
    def media_type(self) -> str:
        """Content type of a stream."""
        return sse.MEDIA_TYPE

    @property
    def keep_alive(self) -> bytes:
        """Bytes without meaning that keep an idle stream open. Empty: the format has none."""
        return b""

    def weight(self, index: int, output: StepOutput) -> int:  # noqa: ARG002
        """Estimate of the work of the next ``feed`` or of ``whole``, in microseconds.

        Until ``begin`` was called, its work is included.
        """
        return weight_of(output)

    def begin(self) -> bytes:
        """Bytes before any output."""
        return b""

    def feed(self, index: int, output: StepOutput) -> bytes:
        """Bytes for one output of choice ``index``, possibly none."""

    def end(self) -> bytes:
        """Bytes after the last choice has finished."""
        return b""

    def error(self, message: str, cause: Exception | None = None) -> bytes | None:  # noqa: ARG002
        """Bytes that end the stream with an error. None: the format cannot express one.

        ``cause`` is the exception that a response without a status yet would end with. None: the
        server has failed.
        """
        return None

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        """The JSON body of a response that is not streamed, from one output per choice."""


class AnswerHead(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that every object of one response repeats. ``created`` is in Unix seconds."""

    id: str
    created: int
    model: str
    system_fingerprint: str

    def of(self, kind: Callable[..., msgspec.Struct]) -> Callable[..., msgspec.Struct]:
        """A constructor of ``kind`` with this head's fields filled in."""
        return partial(kind, **msgspec.structs.asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One response: its head and prompts, and what it reports besides text.

    ``num_choices`` are generated per prompt. ``num_top`` is the number of alternatives per
    generated token, ``num_prompt_top`` per prompt token. None: no log-probabilities. ``warnings``
    are complete before the first output.
    """

    head: AnswerHead
    tokenizer: Tokenizer
    prompts: Sequence[Sequence[int]]
    num_choices: int
    num_top: int | None = None
    num_prompt_top: int | None = None
    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False
    tokens_as_ids: bool = False
    warnings: Sequence[str] = ()

    @property
    def shown_warnings(self) -> list[str] | UnsetType:
        """``warnings`` of the end of an answer: absent if there are none."""
        return list(self.warnings) or UNSET


class UsageCounter:
    """Sums tokens over the choices. Choice ``p * num_choices + j`` belongs to prompt ``p``.

    Each prompt and its cached tokens count once, however many choices it has. Both calls take the
    same time for any number of choices.
    """

    def __init__(self, num_choices: int, num_prompt_tokens: int) -> None:
        self._num_choices = num_choices
        self._num_prompt_tokens = num_prompt_tokens
        self._last: dict[int, tuple[int, int, int]] = {}
        self._num_output = self._num_thinking = self._num_cached = 0

    def count(self, index: int, output: StepOutput) -> None:
        """Take a choice's next output. Its counts are totals so far; an error has none."""
        if output.error is not None:
            return
        cached = output.num_cached_tokens if index % self._num_choices == 0 else 0
        counts = output.num_output_tokens, output.num_thinking_tokens, cached
        last = self._last.get(index, (0, 0, 0))
        self._last[index] = counts
        self._num_output += counts[0] - last[0]
        self._num_thinking += counts[1] - last[1]
        self._num_cached += counts[2] - last[2]

    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self._num_prompt_tokens,
            completion_tokens=self._num_output,
            total_tokens=self._num_prompt_tokens + self._num_output,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self._num_cached),
            completion_tokens_details=CompletionTokensDetails(reasoning_tokens=self._num_thinking),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """The options with which a choice's text becomes a message.

    ``new_parser`` makes the tool-call parser of one choice. None: all text is content.
    ``call_finish_reason`` is the finish reason of a choice that made calls and then stopped.
    """

    new_parser: Callable[[], CallParser] | None = None
    call_finish_reason: Literal["stop", "tool_calls"] = "tool_calls"
    shows_reasoning: bool = True


NewRenderer: TypeAlias = Callable[[Envelope, ChatOptions], Renderer]
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]


class ChoiceDeltas:
    """Parses one choice. Feed it every output of the choice in order, or one merged output."""

    __slots__ = ("_options", "_parser", "has_calls")

    def __init__(self, options: ChatOptions) -> None:
        self._options = options
        self._parser = options.new_parser and options.new_parser()
        self.has_calls = False

    @property
    def is_plain(self) -> bool:
        """Whether the text of outputs is content as it is."""
        return self._parser is None

    def feed(self, output: StepOutput) -> list[Delta]:
        """The deltas of an output. All thinking comes before any text."""
        deltas: list[Delta] = []
        if output.thinking and self._options.shows_reasoning:
            deltas.append(Reasoning(output.thinking))
        if self._parser is not None:
            deltas += self._parser.feed(output.text)
            if output.is_last:
                deltas += self._parser.finish()
        elif output.text:
            deltas.append(Content(output.text))
        if not self.has_calls:
            self.has_calls = any(isinstance(delta, CallBegin) for delta in deltas)
        return deltas

    def finish_reason(self, output: StepOutput) -> FinishReason:
        """Why the choice ended with this last output. ``length`` stays ``length`` after calls."""
        assert output.finish_reason is not None
        if self.has_calls and output.finish_reason == "stop":
            return self._options.call_finish_reason
        return output.finish_reason


def arguments_object(text: str) -> Any:
    """A call's arguments as a JSON object; {} if the limit of tokens has cut them."""
    try:
        is_object = isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        is_object = False
    return msgspec.Raw(text.encode() if is_object else b"{}")
