"""METRICS: the table of all metrics. GET /metrics, docs/metrics.md and tests are made of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, TypeAlias, cast

from core.observe.histogram import SECONDS, Counts, Histogram
from server.bridge.bridge import BridgeState
from server.generation.serving import Serving

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

Values: TypeAlias = Mapping[tuple[str, ...], float | Counts]
"""The values of one metric by the values of its labels: numbers, or the counts of a histogram."""

MetricValues: TypeAlias = list[tuple["Metric", Values]]

_TABLE = """
roseinfer_requests_total counter records.totals.ended by route status ended_by
    Requests that have ended, by what ended them; a stream that failed has its error's status.
roseinfer_finished_choices_total counter records.totals.finished by finished_reason
    vllm:request_success_total
    Choices that were generated to their end.
roseinfer_time_to_first_token_seconds histogram records.totals.first_token
    vllm:time_to_first_token_seconds
    Time from the head of a request to its first token.
roseinfer_request_seconds histogram records.totals.duration
    vllm:e2e_request_latency_seconds
    Time from the head of a request to the last byte of its answer, of finished ones.
roseinfer_request_queue_seconds histogram records.totals.queue
    vllm:request_queue_time_seconds
    Time that a request waited in the engine, also after preemptions.
roseinfer_request_prefill_seconds histogram records.totals.prefill
    vllm:request_prefill_time_seconds
    Time from the start of a request in the engine to its first token.
roseinfer_request_decode_seconds histogram records.totals.decode
    vllm:request_decode_time_seconds
    Time from the first token of a request to its last one.
roseinfer_request_prompt_tokens histogram records.totals.prompt_tokens
    vllm:request_prompt_tokens
    Tokens of the prompts of a finished request.
roseinfer_request_generated_tokens histogram records.totals.generated_tokens
    vllm:request_generation_tokens
    Tokens that a finished request generated, of all choices.
roseinfer_requests_running gauge bridge.stats.num_running
    vllm:num_requests_running
    Sequences that the engine computes. A request with n choices is n sequences.
roseinfer_requests_waiting gauge bridge.stats.num_waiting
    vllm:num_requests_waiting
    Sequences that wait in the engine for a place.
roseinfer_kv_cache_usage_ratio gauge kv_cache_usage
    vllm:kv_cache_usage_perc
    Share of the KV cache's blocks that sequences use, 0 to 1.
roseinfer_kv_cache_blocks gauge bridge.stats.num_blocks
    Blocks of the KV cache.
roseinfer_prefix_cache_queries_total counter bridge.stats.num_prompt_tokens
    vllm:prefix_cache_queries_total
    Tokens of prompts that were looked up in the prefix cache.
roseinfer_prefix_cache_hits_total counter bridge.stats.num_cached_tokens
    vllm:prefix_cache_hits_total
    Tokens of prompts that were found in the prefix cache.
roseinfer_prompt_tokens_total counter bridge.stats.num_prompt_tokens
    vllm:prompt_tokens_total
    Tokens of the prompts that were computed, cached ones included.
roseinfer_generated_tokens_total counter bridge.stats.num_output_tokens
    vllm:generation_tokens_total
    Tokens that were sampled.
roseinfer_preemptions_total counter bridge.stats.num_preemptions
    vllm:num_preemptions_total
    Sequences that gave up their blocks and were computed again.
roseinfer_aborts_total counter bridge.stats.num_aborts
    Sequences that were dropped before their end, mostly because the client left.
roseinfer_steps_total counter bridge.stats.num_steps
    Steps that the engine has computed.
roseinfer_failed_steps_total counter bridge.stats.num_failed_steps
    Steps that failed.
roseinfer_inter_token_seconds histogram bridge.histograms.inter_token
    vllm:inter_token_latency_seconds
    Time from one token of a sequence to its next one, in the engine.
roseinfer_step_seconds histogram bridge.histograms.step
    Time that the core thread spent on a step.
roseinfer_step_stage_seconds histogram bridge.histograms.stages by stage
    Time that the core thread spent on one stage of a step.
roseinfer_batch_sequences histogram bridge.histograms.num_sequences
    Sequences of a step.
roseinfer_batch_tokens histogram bridge.histograms.num_tokens
    vllm:iteration_tokens_total
    Tokens that a step computed, of prompts and of streams.
roseinfer_grammar_compile_seconds histogram compile_times
    Time to compile a new grammar, or to refuse it.
roseinfer_grammar_mask_seconds histogram mask_times
    Time to fill the token masks of some sequences, beside the forward pass.
roseinfer_model_info gauge model_info by model_name dtype device
    Always 1; the labels say what is served. Empty while the model is loaded.
roseinfer_model_path_info gauge model_path by path slower_because
    Always 1; the labels say what computes the model's steps, and why it is not the faster path
    that its family has. Empty while the model is loaded.
roseinfer_ready gauge is_ready
    1 if the server accepts requests; 0 while it loads or drains, or if it has failed.
roseinfer_tickets gauge admission.num_tickets
    Requests between their headers and the last byte of their answer.
roseinfer_refusals_total counter admission.refusals by reason
    Requests that were answered 429, by what there was too much of.
roseinfer_loop_lag_seconds histogram stalls.lateness
    How late a timer of the event loop was, 50 times a second while requests are open.
roseinfer_loop_stalls_total counter stalls.stats.num_stalls
    Times of more than 50 ms in which the event loop served no connection.
roseinfer_loop_busy_stalls_total counter stalls.stats.num_busy_stalls
    Those of them in which the event loop itself computed.
"""
"""Per metric: name, kind and source, the labels after ``by``; vLLM's name of it; its help.

The source is an attribute of Serving, or one of ``_COMPUTED``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. Names of counters end in ``_total``.

    ``read`` returns the value now; with ``labels`` the values by the values of these labels. It is
    called on the event loop and takes microseconds. ``twin`` is the name under which vLLM has the
    same number.
    """

    name: str
    kind: Kind
    help: str
    read: Callable[[Serving], Any]
    labels: tuple[str, ...] = ()
    twin: str = ""

    def values(self, serving: Serving) -> Values:
        found = self.read(serving)
        by_labels = found if isinstance(found, Mapping) else {(): found}
        return {
            (labels,) if isinstance(labels, str) else labels: (
                value.read() if isinstance(value, Histogram) else value
            )
            for labels, value in by_labels.items()
        }


def read_all(serving: Serving) -> MetricValues:
    """The values of all metrics now. Event loop only."""
    return [(metric, metric.values(serving)) for metric in METRICS]


def _kv_cache_usage(serving: Serving) -> float:
    stats = serving.bridge.stats
    return 1.0 - stats.num_free_blocks / stats.num_blocks if stats.num_blocks else 0.0


_NO_TIMES = Histogram(SECONDS)


def _compile_times(serving: Serving) -> Counts | Histogram:
    model = serving.loaded_model
    return _NO_TIMES if model is None else model.grammar_compiler.times.compilations


def _mask_times(serving: Serving) -> Counts | Histogram:
    model = serving.loaded_model
    return _NO_TIMES if model is None else model.grammar_compiler.times.masks


def _model_info(serving: Serving) -> Values:
    model = serving.loaded_model
    facts = ("", "") if model is None else (model.info.dtype, model.info.device)
    return {(serving.settings.model_name, *facts): 1}


def _model_path(serving: Serving) -> Values:
    model = serving.loaded_model
    facts = ("", "") if model is None else (model.info.path.name, model.info.path.slower_because)
    return {facts: 1}


def _is_ready(serving: Serving) -> bool:
    return serving.bridge.state is BridgeState.READY


_COMPUTED: dict[str, Callable[[Serving], Any]] = {
    "kv_cache_usage": _kv_cache_usage,
    "compile_times": _compile_times,
    "mask_times": _mask_times,
    "model_info": _model_info,
    "model_path": _model_path,
    "is_ready": _is_ready,
}


def _metric(entry: str) -> Metric:
    head, *texts = entry.split("\n    ")
    name, kind, source, *labels = head.split()
    return Metric(
        name=name,
        kind=cast("Kind", kind),
        read=_COMPUTED.get(source) or attrgetter(source),
        labels=tuple(labels[1:]),
        twin=texts.pop(0) if texts[0].startswith("vllm:") else "",
        help=" ".join(texts),
    )


METRICS: tuple[Metric, ...] = tuple(map(_metric, re.split(r"\n(?=\w)", _TABLE.strip())))
