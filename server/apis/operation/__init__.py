"""Probes, statistics, metrics and request records."""

from __future__ import annotations

from server.http.apis import Api, ApiPath, register

register(
    Api(
        paths={
            "/health": ApiPath(is_probe=True),
            "/v1/health": ApiPath(is_probe=True),
            "/livez": ApiPath(is_probe=True),
            "/readyz": ApiPath(is_probe=True),
            "/stats": ApiPath(),
            "/metrics": ApiPath(),
            "/requests": ApiPath(),
            "/requests/{request_id:str}": ApiPath(),
        }
    )
)
