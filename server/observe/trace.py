"""Trace: what is known of one request while it is served."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from core.contract.messages import StepOutput
from schemas.records import RequestRecord
from server.bridge.stream import ResponseStream
from server.http.errors import APIError

if TYPE_CHECKING:  # `roseinfer route` has the same front, and no tokenizer
    from core.text.tokenizer import Tokenizer

SCOPE_KEY = "trace"  # key in the ``state`` of an ASGI scope

Phase: TypeAlias = Literal["waiting", "upload", "worker", "engine", "delivery"]


@dataclass(slots=True, kw_only=True, eq=False)
class Trace:
    """Marks and facts of one request, from its head to the last byte. Event loop only.

    A request is in one phase at a time. What it did in the phase ``engine`` is known to the engine.
    """

    method: str = ""
    path: str = ""
    key: str = ""
    request_id: str = ""
    traceparent: str | None = None
    """The client's span that this request is a part of, in W3C's form."""
    clock: Callable[[], float] = time.perf_counter  # the engine's clock
    started_at: float = field(default_factory=time.time)  # unix seconds of ``start``
    seconds: dict[str, float] = field(default_factory=dict)  # seconds of the phases that have ended
    recorder: Callable[[Trace], RequestRecord] | None = None
    """Makes the record at the end, if the request is to have one."""
    status: int | None = None
    is_complete: bool = False  # whether the last byte was sent
    has_left: bool = False  # whether the client has left before that
    error: APIError | None = None  # what was answered in place of the answer
    id: str | None = None
    ignored: list[str] = field(default_factory=list)  # parts of the request without effect
    is_streamed: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    num_prompt_tokens: int = 0
    choices_per_prompt: int = 1
    stream: ResponseStream | None = None
    submitted_at: float | None = None  # when the engine got it, in seconds of the clock
    texts: Texts | None = None
    start: float = field(init=False)
    _since: float = field(init=False)
    _phase: Phase = field(init=False, default="waiting")

    def __post_init__(self) -> None:
        self.start = self._since = self.clock()

    @property
    def now(self) -> float:
        return self.clock()

    def enter(self, phase: Phase) -> None:
        now = self.clock()
        self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase, now

    def works(self) -> None:
        self.enter("worker")

    def submitted(self, stream: ResponseStream) -> None:
        """The engine has it. No other phase follows."""
        self.enter("engine")
        self.stream, self.submitted_at = stream, self._since

    def responds(self, status: int) -> None:
        self.status = status
        if self.stream is None:
            self.enter("delivery")

    def end(self) -> RequestRecord | None:
        """The last byte was sent, or the client has left. Returns its record if it has one."""
        return None if self.recorder is None else self.recorder(self)

    def times(self, now: float) -> dict[str, float]:
        """Seconds of all phases until now."""
        since = self.seconds.get(self._phase, 0.0) + now - self._since
        return {**self.seconds, self._phase: since}


def trace_of(scope: Any) -> Trace:
    """The trace of an HTTP scope; a new one if nobody follows the request."""
    trace: Trace | None = scope.setdefault("state", {}).get(SCOPE_KEY)
    return Trace() if trace is None else trace


BETWEEN = "\n\n"  # between the texts of several prompts or choices


class Texts:
    """Prompt and answer of one request, for an operator who wants them kept."""

    def __init__(self) -> None:
        self.prompt = ""
        """The prompts as the model saw them."""
        self._choices: dict[int, list[str]] = {}

    @property
    def text(self) -> str:
        """What was generated, by choice; thinking stands before the text after it."""
        return BETWEEN.join("".join(self._choices[index]) for index in sorted(self._choices))

    def take_prompts(self, prompts: Sequence[Sequence[int]], tokenizer: Tokenizer) -> None:
        """Decode the prompts. It takes long; worker threads only."""
        texts = [tokenizer.decode(ids, skip_special_tokens=False) for ids in prompts]
        self.prompt = BETWEEN.join(texts)

    def take(self, index: int, output: StepOutput) -> None:
        self._choices.setdefault(index, []).append(output.thinking + output.text)
