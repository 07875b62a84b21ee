"""RequestSpans: makes the span of each request that has ended."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from schemas.records import RequestRecord
from server.tracing.attributes import span_attributes, span_name

_propagator = TraceContextTextMapPropagator()


class RequestSpans:
    """A ``RecordListener``. The span's parent is that of the request's ``traceparent``, if any.

    A span is made when its request is over, so nothing is done for it before. Event loop only.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("roseinfer")

    def __call__(self, record: RequestRecord) -> None:
        """Make the span and hand it to the provider, whose thread sends it."""
        carrier = {} if record.traceparent is None else {"traceparent": record.traceparent}
        start = int(record.started_at * 1e9)
        span = self._tracer.start_span(
            span_name(record),
            context=_propagator.extract(carrier),
            kind=SpanKind.SERVER,
            attributes=span_attributes(record),
            start_time=start,
        )
        if record.ttft_ms is not None:
            span.add_event("first token", timestamp=start + int(record.ttft_ms * 1e6))
        if record.error is not None:
            span.set_status(Status(StatusCode.ERROR, record.error_code))
        span.end(end_time=start + int(record.duration_ms * 1e6))
