"""The span of a request, by OpenTelemetry's conventions for generative AI, as plain data.

https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

import msgspec
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from schemas.records import RequestRecord
from server.http.apis import path_at

_PARAMETERS = {
    **{name: name for name in ("max_tokens", "temperature", "top_p", "top_k", "seed")},
    **{name: name for name in ("presence_penalty", "frequency_penalty")},
    "n": "choice.count",
}
"""Parameters of a record that the conventions name, and their names after ``gen_ai.request.``."""


def span_name(record: RequestRecord) -> str:
    """``chat MODEL``; of a request that asks for no generation: ``POST ROUTE``."""
    operation = path_at(record.route).operation
    return f"{operation} {record.model}" if operation else f"POST {record.route}"


def span_attributes(record: RequestRecord) -> dict[str, str | bool | float | list[str]]:
    """The attributes of an ended request, without its texts. Our own times are milliseconds."""
    found: dict[str, str | bool | float | list[str] | None] = {
        "gen_ai.operation.name": path_at(record.route).operation or None,
        "gen_ai.provider.name": "roseinfer",
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.request.stream": record.stream,
        "gen_ai.response.id": record.id,
        "gen_ai.response.finish_reasons": [reason for reason in record.finish_reasons if reason],
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "http.request.method": "POST",
        "http.route": record.route,
        "http.response.status_code": record.status,
        "error.type": record.error_code or (str(record.status) if record.error else None),
        "roseinfer.request_id": record.request_id,
        "roseinfer.key": record.key,
        "roseinfer.ended_by": record.ended_by,
        "roseinfer.num_steps": record.num_steps,
        "roseinfer.mean_batch": record.mean_batch,
        "roseinfer.num_preemptions": record.num_preemptions,
        "gen_ai.response.time_to_first_chunk": (
            None if record.ttft_ms is None else record.ttft_ms / 1e3
        ),
    }
    for name, value in record.parameters.items():
        if name in _PARAMETERS:
            found[f"gen_ai.request.{_PARAMETERS[name]}"] = value
    for phase, milliseconds in msgspec.structs.asdict(record.times_ms).items():
        found[f"roseinfer.times_ms.{phase}"] = milliseconds
    return {name: value for name, value in found.items() if value is not None and value != []}


_propagator = TraceContextTextMapPropagator()


class RequestSpans:
    """A ``RecordListener``, which makes a request's span when it is over. Event loop only."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("roseinfer")

    def __call__(self, record: RequestRecord) -> None:
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


def new_provider(endpoint: str) -> TracerProvider:
    """A provider whose own thread sends spans to ``endpoint`` by OTLP over HTTP.

    The SDK reads its environment variables, as ``OTEL_SERVICE_NAME`` and
    ``OTEL_EXPORTER_OTLP_HEADERS``. Call ``shutdown`` at the end, which waits for the last spans.
    """
    resource = Resource({SERVICE_NAME: "roseinfer"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider
