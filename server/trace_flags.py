"""The flag of traces."""

from __future__ import annotations

from argparse import ArgumentTypeError
from importlib.util import find_spec

from server.flags import Flag

_PACKAGES = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def endpoint(text: str) -> str:
    """Convert the URL of a collector, for which the optional packages must be there."""
    if not text.startswith(("http://", "https://")):
        raise ArgumentTypeError(f"{text} is no URL of http or https")
    if not all(map(_is_installed, _PACKAGES)):
        raise ArgumentTypeError("traces need more packages: pip install 'roseinfer[otel]'")
    return text


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a parent is missing
        return False


TRACE_FLAGS = (
    Flag(
        name="otlp-traces-endpoint",
        help="send a span of each request to this OpenTelemetry collector (OTLP over HTTP), as "
        "http://localhost:4318/v1/traces; needs roseinfer[otel]",
        metavar="URL",
        convert=endpoint,
    ),
)
