"""``truncation: auto``: leaves out the oldest turns of a conversation that is too long."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from core.contract.errors import ContextLengthExceeded
from schemas.chat import ChatCompletionRequest
from schemas.messages import DeveloperMessage, SystemMessage, UserMessage
from server.job import Job

NewJob = Callable[[ChatCompletionRequest], Job]


def fitting_job(new_job: NewJob, request: ChatCompletionRequest) -> Job:
    """The job without the oldest turns of the user, as few as possible, so that the rest fits.

    Instructions stay. Raises ContextLengthExceeded if the last turn alone is too long.
    """
    starts = [i for i, message in enumerate(request.messages) if isinstance(message, UserMessage)]
    try:
        return new_job(request)
    except ContextLengthExceeded:
        if len(starts) < 2:
            raise
    found: Job | None = None
    low, high = 1, len(starts) - 1
    while low <= high:
        middle = (low + high) // 2
        try:
            found = new_job(_from(request, starts[middle]))
            high = middle - 1
        except ContextLengthExceeded:
            if middle == len(starts) - 1:
                raise
            low = middle + 1
    assert found is not None
    return found


def _from(request: ChatCompletionRequest, start: int) -> ChatCompletionRequest:
    """The request with the messages from ``start`` on, and all instructions."""
    kept = [
        message
        for i, message in enumerate(request.messages)
        if i >= start or isinstance(message, SystemMessage | DeveloperMessage)
    ]
    return msgspec.structs.replace(request, messages=kept)
