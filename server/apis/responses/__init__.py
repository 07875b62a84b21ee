"""OpenAI's Responses API."""

from __future__ import annotations

from server.apis.responses.errors import numbered_event
from server.http.apis import SSE, Api, ApiPath, register

register(
    Api(
        paths={
            "/v1/responses": ApiPath(
                has_ticket=True, stream=SSE, operation="chat", keeps_answers=True
            ),
            "/v1/responses/{response_id:str}": ApiPath(),
            "/v1/responses/{response_id:str}/input_items": ApiPath(),
        },
        places=("/v1/responses",),
        stream_end=numbered_event,
    )
)
