"""What every API's renderer provides. Renderers do no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec

from core.contract.messages import StepOutput
from server.http import sse


def weight_of(output: StepOutput) -> int:
    """Estimate the work of rendering an output. One unit takes about a microsecond."""
    weight = (len(output.token_ids) + len(output.text) + len(output.thinking)) // 8
    for entries in (output.logprobs, output.prompt_logprobs):
        if entries:
            weight += (2 + len(entries[-1].top)) * len(entries)
    return weight


class AnswerHead(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that every object of one response repeats. ``created`` is in Unix seconds."""

    id: str
    created: int
    model: str
    system_fingerprint: str

    def of(self, kind: Callable[..., msgspec.Struct]) -> Callable[..., msgspec.Struct]:
        """A constructor of ``kind`` with this head's fields filled in."""
        return partial(kind, **msgspec.structs.asdict(self))


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
