"""Refuses what the Messages API has and this server does not support."""

from __future__ import annotations

from core.contract.errors import InvalidRequest
from schemas.anthropic import ConversationFields

THREADS = "thread_unsupported_request"
"""Anthropic's code; a client that gets it sends the whole conversation instead."""


def refuse_unsupported(request: ConversationFields) -> None:
    """Raise InvalidRequest naming the first field that is not supported."""
    if request.thread is not None:
        raise InvalidRequest(
            "This server keeps no threads. Send the whole conversation without 'thread'.",
            param="thread",
            code=THREADS,
        )
    for name in ("container", "mcp_servers", "compaction"):
        if getattr(request, name):
            raise unsupported(f"'{name}' is not supported by this server.", name)


def unsupported(message: str, param: str) -> InvalidRequest:
    """The refusal of something that the API has."""
    return InvalidRequest(message, param=param, code="unsupported_parameter")


def invalid(message: str, param: str) -> InvalidRequest:
    """The refusal of something that the API does not allow."""
    return InvalidRequest(message, param=param, code="invalid_value")


def missing(param: str) -> InvalidRequest:
    """The refusal of a request without a field that the API requires."""
    return InvalidRequest(
        f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter"
    )
