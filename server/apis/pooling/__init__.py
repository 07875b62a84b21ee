"""Embeddings and scores."""

from __future__ import annotations

from server.http.apis import Api, ApiPath, register

register(
    Api(
        paths={
            "/v1/embeddings": ApiPath(has_ticket=True, operation="embeddings"),
            "/v1/rerank": ApiPath(has_ticket=True, operation="rerank"),
            "/v1/score": ApiPath(has_ticket=True, operation="score"),
        }
    )
)
