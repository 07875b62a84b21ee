"""new_provider: OpenTelemetry's provider that sends spans to a collector."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def new_provider(endpoint: str) -> TracerProvider:
    """A provider whose own thread sends spans to ``endpoint`` by OTLP over HTTP.

    The SDK reads its environment variables, as ``OTEL_SERVICE_NAME`` and
    ``OTEL_EXPORTER_OTLP_HEADERS``. Call ``shutdown`` at the end, which waits for the last spans.
    """
    resource = Resource({SERVICE_NAME: "roseinfer"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider
