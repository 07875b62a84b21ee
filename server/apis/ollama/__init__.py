"""Ollama's API."""

from __future__ import annotations

from server.apis.ollama.errors import ollama_shape
from server.http.apis import NDJSON, Api, ApiPath, register

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
