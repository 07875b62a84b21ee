"""The error tree of the engine: whatever a client or an operator can cause.

::

    RoseInferError
    ├── InvalidRequest            the client asked for something impossible (400)
    │   └── ContextLengthExceeded     ... more tokens than the window holds
    ├── QueueFull                 no room for one more request now (429)
    ├── Unavailable               loading, draining or dead: come back later (503)
    ├── GenerationFailed          a step failed while this request was in it (500)
    └── ModelLoadError            the operator named a model that cannot be served (exit code 2)

``assert`` is for what only a bug of ours can cause; everything else is one of these.
"""

from __future__ import annotations


class RoseInferError(Exception):
    """Base of every error that the engine raises on purpose."""


class InvalidRequest(RoseInferError):
    """A request that can never succeed; ``param`` names the offending field on the wire."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class ContextLengthExceeded(InvalidRequest):
    """The prompt, or the prompt and the tokens asked for, do not fit the context window."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class QueueFull(RoseInferError):
    """As many requests are waiting as the operator allows."""


class Unavailable(RoseInferError):
    """The engine takes no new work: it is loading, draining, or has died."""


class GenerationFailed(RoseInferError):
    """The engine failed while it worked on this request; the request is over."""


class ModelLoadError(RoseInferError):
    """The model named by the operator cannot be served; the message is one clear line."""
