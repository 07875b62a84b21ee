"""llama.cpp's top-level fields.

They are declared so that the server can refuse by name those that would change the output.
Undeclared fields are ignored.
"""

from schemas.base import RequestModel
from schemas.scalars import JsonObject


class LlamaCppSamplingFields(RequestModel, frozen=True, kw_only=True):
    """Fields that change the generated tokens or their report. The server refuses them."""

    n_predict: int | None = None
    n_probs: int | None = None
    n_keep: int | None = None
    n_discard: int | None = None
    min_keep: int | None = None
    post_sampling_probs: bool | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    samplers: str | list[str] | None = None
    grammar_lazy: bool | None = None
    grammar_triggers: list[JsonObject] | None = None
    lora: list[JsonObject] | None = None
    input_prefix: str | None = None
    input_suffix: str | None = None
    t_max_predict_ms: int | None = None


class LlamaCppFields(LlamaCppSamplingFields, frozen=True, kw_only=True):
    """Adds the fields that do not change the generated text."""

    cache_prompt: bool | None = None
    id_slot: int | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    sse_ping_interval: int | None = None
