"""One span per request, by the conventions for generative AI, in the trace of the client."""

from __future__ import annotations

import msgspec
import pytest

from server.observe.tracing import span_attributes, span_name
from tests.support.records import ended

pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk (roseinfer[otel])")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

from server.observe.tracing import RequestSpans

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def listen(exporter):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield RequestSpans(provider)
    provider.shutdown()


def test_a_request_is_one_span_with_its_times(listen, exporter):
    listen(ended(started_at=100.0, duration_ms=250.0, ttft_ms=50.0))
    [span] = exporter.get_finished_spans()
    assert (span.name, span.kind) == ("chat m", SpanKind.SERVER)
    assert (span.start_time, span.end_time) == (100_000_000_000, 100_250_000_000)
    assert [(event.name, event.timestamp) for event in span.events] == [
        ("first token", 100_050_000_000)
    ]
    assert span.parent is None
    assert span.status.status_code is StatusCode.UNSET


def test_the_span_belongs_to_the_clients_trace(listen, exporter):
    listen(ended(traceparent=f"00-{TRACE}-{PARENT}-01"))
    [span] = exporter.get_finished_spans()
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT


def test_a_client_that_does_not_sample_gets_no_span(listen, exporter):
    listen(ended(traceparent=f"00-{TRACE}-{PARENT}-00"))
    assert not exporter.get_finished_spans()


@pytest.mark.parametrize("bad", ["x", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{PARENT}"])
def test_a_traceparent_that_is_wrong_begins_a_trace(listen, exporter, bad):
    listen(ended(traceparent=bad))
    [span] = exporter.get_finished_spans()
    assert span.parent is None
    assert span.context.trace_id


def test_a_failed_request_has_the_status_error(listen, exporter):
    listen(ended(error="secret words", error_code="server_error", status=500, ended_by="error"))
    [span] = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "server_error"
    assert span.attributes["http.response.status_code"] == 500
    assert "secret" not in str(span.attributes) + str(span.status.description)


def test_attributes_are_those_of_the_conventions():
    names = {
        value
        for name, value in vars(gen_ai_attributes).items()
        if name.startswith("GEN_AI_") and isinstance(value, str)
    }
    filled = ended(id="chatcmpl-1", ttft_ms=5.0, parameters={"n": 2, "top_k": 5, "seed": 3})
    ours = {name for name in span_attributes(filled) if name.startswith("gen_ai.")}
    assert ours <= names
    assert len(ours) >= 12


def test_the_attributes_say_what_the_record_says():
    found = span_attributes(
        ended(
            prompt_tokens=12,
            cached_tokens=8,
            completion_tokens=3,
            finish_reasons=["stop", None],
            parameters={"temperature": 0.5, "max_tokens": 7, "seed": None, "grammar": "regex"},
        )
    )
    assert found["gen_ai.usage.input_tokens"] == 12
    assert found["gen_ai.usage.cache_read.input_tokens"] == 8
    assert found["gen_ai.usage.output_tokens"] == 3
    assert found["gen_ai.response.finish_reasons"] == ["stop"]
    assert found["gen_ai.request.temperature"] == 0.5
    assert found["gen_ai.request.max_tokens"] == 7
    assert "gen_ai.request.seed" not in found
    assert "roseinfer.times_ms.prefill" in found


def test_texts_are_not_in_the_span():
    texts = {"prompt": "secret", "text": "secret", "error": "secret"}
    kept = msgspec.structs.replace(ended(parameters={"stop": ["secret"]}), **texts)
    assert "secret" not in str(span_attributes(kept)) + span_name(kept)


def test_a_request_without_generation_is_named_by_its_route():
    other = ended(route="/tokenize")
    assert span_name(other) == "POST /tokenize"
    assert "gen_ai.operation.name" not in span_attributes(other)
