"""llama.cpp's top-level fields.

They are declared so that the server can refuse by name those that would change the output.
"""

from typing import Any

from schemas.base import RequestModel
from schemas.scalars import Int64, JsonObjectList, Label, LabelList, Number


class LlamaCppSamplingFields(RequestModel, frozen=True, kw_only=True):
    """Fields that change the generated tokens or their report.

    The server refuses values that have an effect. A parameter of a method may have any form: it
    has no effect while the method is off.
    """

    n_predict: Int64 | None = None
    n_probs: Int64 | None = None
    n_keep: Int64 | None = None
    n_discard: Int64 | None = None
    min_keep: Int64 | None = None
    post_sampling_probs: bool | None = None
    repeat_penalty: Number | None = None
    repeat_last_n: Any = None
    penalize_nl: Any = None
    typical_p: Number | None = None
    tfs_z: Number | None = None
    top_n_sigma: Number | None = None
    dynatemp_range: Number | None = None
    dynatemp_exponent: Any = None
    mirostat: Int64 | None = None
    mirostat_tau: Any = None
    mirostat_eta: Any = None
    dry_multiplier: Number | None = None
    dry_base: Any = None
    dry_allowed_length: Any = None
    dry_penalty_last_n: Any = None
    dry_sequence_breakers: Any = None
    xtc_probability: Number | None = None
    xtc_threshold: Any = None
    samplers: Label | LabelList | None = None
    grammar_lazy: bool | None = None
    grammar_triggers: JsonObjectList | None = None
    lora: JsonObjectList | None = None
    input_prefix: Label | None = None
    input_suffix: Label | None = None
    t_max_predict_ms: Int64 | None = None


class LlamaCppFields(LlamaCppSamplingFields, frozen=True, kw_only=True):
    """Adds the fields that do not change the generated text."""

    cache_prompt: bool | None = None
    id_slot: Int64 | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    sse_ping_interval: Int64 | None = None
