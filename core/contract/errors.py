"""The errors of the engine: everything that a client or an operator can cause.

::

    RoseInferError
    ├── InvalidRequest            the request can never succeed (400)
    │   └── ContextLengthExceeded     ... more tokens than the context window (400)
    ├── QueueFull                 a limit on waiting work is reached (429)
    ├── DeadlineExceeded          the request's time is over (504)
    ├── Unavailable               the engine is loading, draining or dead (503)
    ├── RequestCancelled          the client has left (no answer)
    ├── GenerationFailed          the engine failed on this request (500)
    └── ModelLoadError            the model cannot be served (exit code 2)

``assert`` is for internal bugs only.
"""

from __future__ import annotations


class RoseInferError(Exception):
    """Base class."""


class InvalidRequest(RoseInferError):
    """A request that can never succeed; ``param`` names the offending field on the wire."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class ContextLengthExceeded(InvalidRequest):
    """The prompt, or the prompt plus ``max_tokens``, exceeds the context window."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class QueueFull(RoseInferError):
    """A limit of the operator is reached; there may be room after ``retry_after`` seconds."""

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DeadlineExceeded(RoseInferError):
    """The time that the client or the operator gives a request is over.

    ``retry_after`` is None if a repetition would probably take as long.
    """

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unavailable(RoseInferError):
    """The engine accepts no new requests: it is loading, draining or dead."""


class RequestCancelled(RoseInferError):
    """The client has left, so the work for its request was dropped."""


class GenerationFailed(RoseInferError):
    """The engine failed on this request, which has ended."""


class ModelLoadError(RoseInferError):
    """The model cannot be served; the message is one line for the operator."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message that says something, or the name of its type.

    A line that ends with a colon is joined with the next one. A KeyError's is only the key.
    """
    kind = type(error).__name__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [kind]
    while lines[0].endswith(":") and len(lines) > 1:
        lines[:2] = [f"{lines[0]} {lines[1]}"]
    return f"{kind}: {lines[0]}" if isinstance(error, KeyError) else lines[0]


def is_survivable(error: BaseException) -> bool:
    """Whether a failure may end one request only: any Exception, and a panic in Rust.

    PyO3 raises panics as a BaseException of its own, with one class per extension module.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
