"""OpenAI's chat, completions and models, with tokenization and ``/generate``."""

from __future__ import annotations

from server.http.apis import SSE, Api, ApiPath, plain_event, register

register(
    Api(
        paths={
            "/v1/chat/completions": ApiPath(has_ticket=True, stream=SSE, operation="chat"),
            "/v1/completions": ApiPath(has_ticket=True, stream=SSE, operation="text_completion"),
            "/generate": ApiPath(has_ticket=True, stream="text/plain", operation="text_completion"),
            "/tokenize": ApiPath(has_ticket=True),
            "/v1/tokenize": ApiPath(has_ticket=True),
            "/detokenize": ApiPath(has_ticket=True),
            "/v1/detokenize": ApiPath(has_ticket=True),
            "/v1/models": ApiPath(),
            "/v1/models/{model_id:path}": ApiPath(),
        },
        places=("/v1/chat/completions", "/v1/completions"),
        stream_end=plain_event,
    )
)
