"""Probes of health: requests that are answered however busy the server is."""

from __future__ import annotations

PROBES = frozenset({"/health", "/v1/health", "/livez", "/readyz"})
"""Their paths."""

_STARTS = tuple(
    f"{method} {path}{end}".encode()
    for method in ("GET", "HEAD")
    for path in sorted(PROBES)
    for end in " ?"
)

LONGEST_START = max(map(len, _STARTS))
"""Bytes of a request that tell whether it is a probe."""


def is_probe(data: bytes) -> bool:
    """Whether a request that starts with these bytes is a probe."""
    return data.startswith(_STARTS)
