"""Ollama's API."""

from __future__ import annotations

import msgspec

from schemas.errors import ErrorObject
from schemas.ollama_answer import OllamaError
from server.http.apis import NDJSON, Api, ApiPath, register


def ollama_shape(_status: int, error: ErrorObject, _request_id: str | None = None) -> bytes:
    """``{"error": "..."}``. The message begins with the field at fault if it does not name it."""
    param = "format" if error.param == "response_format" else error.param
    is_named = param is None or param in error.message
    message = error.message if is_named else f"{param}: {error.message}"
    return msgspec.json.encode(OllamaError(error=message))


register(
    Api(
        paths={
            "/api/chat": ApiPath(has_ticket=True, stream=NDJSON, operation="chat"),
            "/api/generate": ApiPath(has_ticket=True, stream=NDJSON, operation="text_completion"),
            "/api/embed": ApiPath(has_ticket=True, operation="embeddings"),
            "/api/embeddings": ApiPath(has_ticket=True, operation="embeddings"),
            "/api/show": ApiPath(has_ticket=True),
            "/api/version": ApiPath(),
            "/api/tags": ApiPath(),
            "/api/ps": ApiPath(),
            "/api/pull": ApiPath(),
            "/api/push": ApiPath(),
            "/api/create": ApiPath(),
            "/api/copy": ApiPath(),
            "/api/delete": ApiPath(),
        },
        places=("/api/",),
        shape=ollama_shape,
        takes_any_media_type=True,
        model_tag=":latest",
    )
)
