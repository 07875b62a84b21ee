"""Cross-origin requests: which web pages may read answers."""

from __future__ import annotations

from litestar.config.cors import CORSConfig

from server.settings import Settings


def cors_config(settings: Settings) -> CORSConfig | None:
    """Litestar's configuration for the allowed origins. None: there are none."""
    if not settings.allowed_origins:
        return None
    return CORSConfig(
        allow_origins=list(settings.allowed_origins),
        allow_methods=["GET", "POST", "OPTIONS"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "x-roseinfer-ignored", "retry-after"],
        max_age=86400,
    )
