"""Probes, statistics, metrics and request records."""

from __future__ import annotations

from server.http.apis import Api, ApiPath, register

_PROBES = ("/health", "/v1/health", "/livez", "/readyz")
_OTHERS = ("/stats", "/metrics", "/requests", "/requests/{request_id:str}")

register(Api(paths={path: ApiPath(is_probe=path in _PROBES) for path in (*_PROBES, *_OTHERS)}))
