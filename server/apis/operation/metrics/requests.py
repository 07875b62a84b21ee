"""Metrics of requests that have ended.

Metrics of the front end: admission and the event loop.
"""

from __future__ import annotations

from server.apis.operation.metrics.definitions import Metric, Values, by_label
from server.bridge.bridge import BridgeState
from server.generation.serving import Serving

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


def _refusals(serving: Serving) -> Values:
    return by_label(serving.admission.refusals)


def _info(serving: Serving) -> Values:
    model = serving.loaded_model
    facts = ("", "") if model is None else (model.info.dtype, model.info.device)
    return {(serving.settings.model_name, *facts): 1}


def _path(serving: Serving) -> Values:
    model = serving.loaded_model
    facts = ("", "") if model is None else (model.info.path.name, model.info.path.slower_because)
    return {facts: 1}


FRONT_METRICS = (
    Metric(
        name="roseinfer_model_info",
        kind="gauge",
        help="Always 1; the labels say what is served. Empty while the model is loaded.",
        read=_info,
        labels=("model_name", "dtype", "device"),
    ),
    Metric(
        name="roseinfer_model_path_info",
        kind="gauge",
        help="Always 1; the labels say what computes the model's steps, and why it is not the "
        "faster path that its family has. Empty while the model is loaded.",
        read=_path,
        labels=("path", "slower_because"),
    ),
    Metric(
        name="roseinfer_ready",
        kind="gauge",
        help="1 if the server accepts requests; 0 while it loads or drains, or if it has failed.",
        read=lambda serving: serving.bridge.state is BridgeState.READY,
    ),
    Metric(
        name="roseinfer_tickets",
        kind="gauge",
        help="Requests between their headers and the last byte of their answer.",
        read=lambda serving: serving.admission.num_tickets,
    ),
    Metric(
        name="roseinfer_refusals_total",
        kind="counter",
        help="Requests that were answered 429, by what there was too much of.",
        read=_refusals,
        labels=("reason",),
    ),
    Metric(
        name="roseinfer_loop_lag_seconds",
        kind="histogram",
        help="How late a timer of the event loop was, 50 times a second while requests are open.",
        read=lambda serving: serving.stalls.lateness.read(),
    ),
    Metric(
        name="roseinfer_loop_stalls_total",
        kind="counter",
        help="Times of more than 50 ms in which the event loop served no connection.",
        read=lambda serving: serving.stalls.stats.num_stalls,
    ),
    Metric(
        name="roseinfer_loop_busy_stalls_total",
        kind="counter",
        help="Those of them in which the event loop itself computed.",
        read=lambda serving: serving.stalls.stats.num_busy_stalls,
    ),
)
