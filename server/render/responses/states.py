"""The response object in its later states: ended, failed."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import structs

from schemas.responses import (
    IncompleteDetails,
    Response,
    ResponseError,
    ResponseInputDetails,
    ResponseOutputDetails,
    ResponseUsage,
)
from schemas.responses_items import OutputItem
from schemas.usage import Usage
from server.errors import stream_error


def ended(
    response: Response, items: Sequence[OutputItem], usage: Usage, *, is_cut: bool
) -> Response:
    """The response at its end. ``is_cut``: a limit of tokens has ended it."""
    return structs.replace(
        response,
        status="incomplete" if is_cut else "completed",
        incomplete_details=IncompleteDetails() if is_cut else None,
        completed_at=None if is_cut else int(time.time()),
        output=list(items),
        usage=_response_usage(usage),
    )


def failed(response: Response, items: Sequence[OutputItem], usage: Usage, message: str) -> Response:
    """The response after a failure, with the items until then."""
    return structs.replace(
        response,
        status="failed",
        error=ResponseError(message=stream_error(message).message),
        output=list(items),
        usage=_response_usage(usage),
    )


def _response_usage(usage: Usage) -> ResponseUsage:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    assert prompt
    assert completion
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=ResponseInputDetails(cached_tokens=prompt.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=ResponseOutputDetails(reasoning_tokens=completion.reasoning_tokens),
        total_tokens=usage.total_tokens,
    )
