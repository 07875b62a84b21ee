"""Anthropic's Messages API."""

from __future__ import annotations

from server.apis.anthropic.errors import anthropic_shape
from server.http.apis import SSE, Api, ApiPath, register

register(
    Api(
        paths={
            "/v1/messages": ApiPath(has_ticket=True, stream=SSE, operation="chat"),
            "/v1/messages/count_tokens": ApiPath(has_ticket=True),
        },
        places=("/v1/messages",),
        shape=anthropic_shape,
        id_headers=(b"x-request-id", b"request-id"),
    )
)
