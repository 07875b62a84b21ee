"""Metrics of requests that have ended."""

from __future__ import annotations

from server.metrics.definitions import Metric, by_label

REQUEST_METRICS = (
    Metric(
        name="roseinfer_requests_total",
        kind="counter",
        help="Requests that have ended, by what ended them; a stream that failed has its error's "
        "status.",
        read=lambda serving: dict(serving.records.totals.ended),
        labels=("route", "status", "ended_by"),
    ),
    Metric(
        name="roseinfer_finished_choices_total",
        kind="counter",
        help="Choices that were generated to their end.",
        read=lambda serving: by_label(serving.records.totals.finished),
        labels=("finished_reason",),
        twin="vllm:request_success_total",
    ),
    Metric(
        name="roseinfer_time_to_first_token_seconds",
        kind="histogram",
        help="Time from the head of a request to its first token.",
        read=lambda serving: serving.records.totals.first_token.read(),
        twin="vllm:time_to_first_token_seconds",
    ),
    Metric(
        name="roseinfer_request_seconds",
        kind="histogram",
        help="Time from the head of a request to the last byte of its answer, of finished ones.",
        read=lambda serving: serving.records.totals.duration.read(),
        twin="vllm:e2e_request_latency_seconds",
    ),
    Metric(
        name="roseinfer_request_queue_seconds",
        kind="histogram",
        help="Time that a request waited in the engine, also after preemptions.",
        read=lambda serving: serving.records.totals.queue.read(),
        twin="vllm:request_queue_time_seconds",
    ),
    Metric(
        name="roseinfer_request_prefill_seconds",
        kind="histogram",
        help="Time from the start of a request in the engine to its first token.",
        read=lambda serving: serving.records.totals.prefill.read(),
        twin="vllm:request_prefill_time_seconds",
    ),
    Metric(
        name="roseinfer_request_decode_seconds",
        kind="histogram",
        help="Time from the first token of a request to its last one.",
        read=lambda serving: serving.records.totals.decode.read(),
        twin="vllm:request_decode_time_seconds",
    ),
    Metric(
        name="roseinfer_request_prompt_tokens",
        kind="histogram",
        help="Tokens of the prompts of a finished request.",
        read=lambda serving: serving.records.totals.prompt_tokens.read(),
        twin="vllm:request_prompt_tokens",
    ),
    Metric(
        name="roseinfer_request_generated_tokens",
        kind="histogram",
        help="Tokens that a finished request generated, of all choices.",
        read=lambda serving: serving.records.totals.generated_tokens.read(),
        twin="vllm:request_generation_tokens",
    ),
)
