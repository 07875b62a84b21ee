"""What every kind of answer shares: its head, its counts, and the two ways to be rendered."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from core.contract.messages import EngineRequest, StepOutput
from schemas.usage import CompletionTokensDetails, PromptTokensDetails, Usage
from server import sse
from server.errors import stream_error
from server.render.thinking import ThinkingCounter


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same in every chunk of an answer. ``created`` is Unix seconds."""

    id: str
    created: int
    model: str
    system_fingerprint: str

    def of(self, kind: Callable[..., msgspec.Struct]) -> Callable[..., msgspec.Struct]:
        """What makes objects of this ``kind`` with this head; the rest is still to be given."""
        return partial(kind, **msgspec.structs.asdict(self))


class StreamRenderer(Protocol):
    """Outputs to the bytes of a streamed body, piece by piece. Sans-IO."""

    def begin(self) -> bytes:
        """What comes before any output."""

    def feed(self, index: int, output: StepOutput) -> bytes:
        """What one output of choice ``index`` adds; maybe nothing."""

    def end(self) -> bytes:
        """What comes after the last choice has finished."""

    def error(self, message: str) -> bytes | None:
        """What says that the answer ends early; None if this format has no way to say it."""


class WholeRenderer(Protocol):
    """Outputs, one for each choice, to the body of an answer in one piece."""

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        """The JSON body."""


class EventRenderer:
    """What the renderers of both endpoints share: chunks, usage if asked for, and errors.

    ``new_chunk`` makes a chunk from its choices, its usage, and what else it may have.
    """

    def __init__(
        self,
        new_chunk: Callable[..., msgspec.Struct],
        counter: UsageCounter,
        *,
        include_usage: bool,
        continuous: bool,
    ) -> None:
        self._new_chunk = new_chunk
        self._counter = counter
        self._include_usage = include_usage
        self._continuous = include_usage and continuous
        self._templates: dict[Hashable, sse.Template] = {}

    def end(self) -> bytes:
        """The usage chunk if it was asked for, and the end marker."""
        if not self._include_usage:
            return sse.DONE
        return sse.frame(self._new_chunk(choices=[], usage=self._counter.usage())) + sse.DONE

    def error(self, message: str) -> bytes:
        """An error event, and the end marker."""
        return sse.error_frame(stream_error(message)) + sse.DONE

    def _frame(self, choice: msgspec.Struct, **more: Any) -> bytes:
        """The chunk with this choice."""
        return sse.frame(self._new_chunk(choices=[choice], usage=self._usage_so_far(), **more))

    def _filled(self, key: Hashable, text: str, frame_of: Callable[[str], bytes]) -> bytes:
        """What ``frame_of(text)`` gives, where nothing but the text differs for one ``key``."""
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = sse.Template(frame_of(sse.HOLE))
        return template.fill(text)

    def _usage_so_far(self) -> Usage | UnsetType | None:
        """What an ordinary chunk says of usage: nothing, null, or the counts so far."""
        if not self._include_usage:
            return UNSET
        return self._counter.usage() if self._continuous else None


@dataclass(slots=True)
class UsageCounter:
    """Adds up tokens over the choices of a response; choice ``p * num_choices + j`` is prompt p's.

    A prompt counts once however many choices it has, and so do its cached tokens.
    """

    num_choices: int
    num_prompt_tokens: int
    new_thinking_counter: Callable[[], ThinkingCounter] | None = None
    _outputs: dict[int, StepOutput] = field(default_factory=dict)
    _thinking: dict[int, ThinkingCounter] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        requests: Sequence[EngineRequest],
        num_choices: int,
        new_thinking_counter: Callable[[], ThinkingCounter] | None = None,
    ) -> UsageCounter:
        """A counter for a response with these requests."""
        num_prompt_tokens = sum(len(r.prompt_token_ids) for r in requests[::num_choices])
        return cls(num_choices, num_prompt_tokens, new_thinking_counter)

    def count(self, index: int, output: StepOutput) -> None:
        """Take in the next output of one choice, which holds its totals so far."""
        self._outputs[index] = output
        if self.new_thinking_counter is not None:
            if index not in self._thinking:
                self._thinking[index] = self.new_thinking_counter()
            self._thinking[index].feed(output)

    def usage(self) -> Usage:
        """The counts so far."""
        firsts = [o for i, o in self._outputs.items() if i % self.num_choices == 0]
        num_output_tokens = sum(output.num_output_tokens for output in self._outputs.values())
        return Usage(
            prompt_tokens=self.num_prompt_tokens,
            completion_tokens=num_output_tokens,
            total_tokens=self.num_prompt_tokens + num_output_tokens,
            prompt_tokens_details=PromptTokensDetails(
                cached_tokens=sum(output.num_cached_tokens for output in firsts)
            ),
            completion_tokens_details=CompletionTokensDetails(
                reasoning_tokens=sum(counter.count for counter in self._thinking.values())
            ),
        )
