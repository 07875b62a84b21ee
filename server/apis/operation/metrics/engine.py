"""Metrics of the engine: the counters and the step times of the core thread."""

from __future__ import annotations

from core.histogram import SECONDS, Counts, Histogram
from server.apis.operation.metrics.definitions import Metric, Values, by_label
from server.generation.serving import Serving

_NO_TIMES = Histogram(SECONDS).read()


def _kv_cache_usage(serving: Serving) -> float:
    stats = serving.bridge.stats
    return 1.0 - stats.num_free_blocks / stats.num_blocks if stats.num_blocks else 0.0


def _stage_times(serving: Serving) -> Values:
    stages = serving.bridge.histograms.stages
    return by_label({stage: histogram.read() for stage, histogram in stages.items()})


def _compile_times(serving: Serving) -> Counts:
    model = serving.loaded_model
    return _NO_TIMES if model is None else model.grammar_compiler.times.compilations


def _mask_times(serving: Serving) -> Counts:
    model = serving.loaded_model
    return _NO_TIMES if model is None else model.grammar_compiler.times.masks


ENGINE_METRICS = (
    Metric(
        name="roseinfer_requests_running",
        kind="gauge",
        help="Sequences that the engine computes. A request with n choices is n sequences.",
        read=lambda serving: serving.bridge.stats.num_running,
        twin="vllm:num_requests_running",
    ),
    Metric(
        name="roseinfer_requests_waiting",
        kind="gauge",
        help="Sequences that wait in the engine for a place.",
        read=lambda serving: serving.bridge.stats.num_waiting,
        twin="vllm:num_requests_waiting",
    ),
    Metric(
        name="roseinfer_kv_cache_usage_ratio",
        kind="gauge",
        help="Share of the KV cache's blocks that sequences use, 0 to 1.",
        read=_kv_cache_usage,
        twin="vllm:kv_cache_usage_perc",
    ),
    Metric(
        name="roseinfer_kv_cache_blocks",
        kind="gauge",
        help="Blocks of the KV cache.",
        read=lambda serving: serving.bridge.stats.num_blocks,
    ),
    Metric(
        name="roseinfer_prefix_cache_queries_total",
        kind="counter",
        help="Tokens of prompts that were looked up in the prefix cache.",
        read=lambda serving: serving.bridge.stats.num_prompt_tokens,
        twin="vllm:prefix_cache_queries_total",
    ),
    Metric(
        name="roseinfer_prefix_cache_hits_total",
        kind="counter",
        help="Tokens of prompts that were found in the prefix cache.",
        read=lambda serving: serving.bridge.stats.num_cached_tokens,
        twin="vllm:prefix_cache_hits_total",
    ),
    Metric(
        name="roseinfer_prompt_tokens_total",
        kind="counter",
        help="Tokens of the prompts that were computed, cached ones included.",
        read=lambda serving: serving.bridge.stats.num_prompt_tokens,
        twin="vllm:prompt_tokens_total",
    ),
    Metric(
        name="roseinfer_generated_tokens_total",
        kind="counter",
        help="Tokens that were sampled.",
        read=lambda serving: serving.bridge.stats.num_output_tokens,
        twin="vllm:generation_tokens_total",
    ),
    Metric(
        name="roseinfer_preemptions_total",
        kind="counter",
        help="Sequences that gave up their blocks and were computed again.",
        read=lambda serving: serving.bridge.stats.num_preemptions,
        twin="vllm:num_preemptions_total",
    ),
    Metric(
        name="roseinfer_aborts_total",
        kind="counter",
        help="Sequences that were dropped before their end, mostly because the client left.",
        read=lambda serving: serving.bridge.stats.num_aborts,
    ),
    Metric(
        name="roseinfer_steps_total",
        kind="counter",
        help="Steps that the engine has computed.",
        read=lambda serving: serving.bridge.stats.num_steps,
    ),
    Metric(
        name="roseinfer_failed_steps_total",
        kind="counter",
        help="Steps that failed.",
        read=lambda serving: serving.bridge.stats.num_failed_steps,
    ),
    Metric(
        name="roseinfer_inter_token_seconds",
        kind="histogram",
        help="Time from one token of a sequence to its next one, in the engine.",
        read=lambda serving: serving.bridge.histograms.inter_token.read(),
        twin="vllm:inter_token_latency_seconds",
    ),
    Metric(
        name="roseinfer_step_seconds",
        kind="histogram",
        help="Time that the core thread spent on a step.",
        read=lambda serving: serving.bridge.histograms.step.read(),
    ),
    Metric(
        name="roseinfer_step_stage_seconds",
        kind="histogram",
        help="Time that the core thread spent on one stage of a step.",
        read=_stage_times,
        labels=("stage",),
    ),
    Metric(
        name="roseinfer_batch_sequences",
        kind="histogram",
        help="Sequences of a step.",
        read=lambda serving: serving.bridge.histograms.num_sequences.read(),
    ),
    Metric(
        name="roseinfer_batch_tokens",
        kind="histogram",
        help="Tokens that a step computed, of prompts and of streams.",
        read=lambda serving: serving.bridge.histograms.num_tokens.read(),
        twin="vllm:iteration_tokens_total",
    ),
    Metric(
        name="roseinfer_grammar_compile_seconds",
        kind="histogram",
        help="Time to compile a new grammar, or to refuse it.",
        read=_compile_times,
    ),
    Metric(
        name="roseinfer_grammar_mask_seconds",
        kind="histogram",
        help="Time to fill the token masks of some sequences, beside the forward pass.",
        read=_mask_times,
    ),
)
