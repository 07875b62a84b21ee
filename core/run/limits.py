"""Limits: sizes of batches and contexts, from the configuration and the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.contract.config import EngineConfig
from core.contract.errors import ModelLoadError
from core.load.layer_configs import layer_configs, number
from core.load.loaded_model import LoadedModel

DEFAULT_MAX_NUM_BATCHED_TOKENS = {"cpu": 512, "cuda": 8192}
"""Largest step by device, in tokens. Either takes a fraction of a second."""

DEFAULT_MAX_STEP_MS = {"cpu": 50.0, "cuda": None}
"""Expected duration of a step with prompts beside decodes. On a CPU the largest step would take
many times as long as one without prompts. Beside slow streams it is longer: see ``StepTime``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """See EngineConfig, whose defaults are resolved here. Lengths and sizes are in tokens.

    ``keys_per_row`` is that of the scheduler's PromptRows.
    """

    max_num_seqs: int
    max_model_len: int
    max_num_batched_tokens: int
    prefill_chunk_size: int | None
    max_step_seconds: float | None
    block_size: int
    keys_per_row: float = math.inf

    @classmethod
    def of(cls, model: LoadedModel, config: EngineConfig) -> Limits:
        """Resolve the limits. Raises ModelLoadError, naming the flag, if they conflict."""
        device = model.device.type
        return cls(
            max_num_seqs=config.max_num_seqs,
            max_model_len=_max_model_len(model, config.max_model_len),
            max_num_batched_tokens=_max_num_batched_tokens(device, config),
            prefill_chunk_size=config.prefill_chunk_size,
            max_step_seconds=max_step_seconds(device, config),
            block_size=config.block_size,
            keys_per_row=keys_per_row(model.config),
        )


def _max_model_len(model: LoadedModel, wanted: int | None) -> int:
    longest = model.max_model_len
    if wanted is None and longest is None:
        raise ModelLoadError(
            f"{type(model.config).__name__} does not say how long its context is: "
            "give --max-model-len"
        )
    if wanted is None or longest is None:
        return longest or wanted or 0
    if wanted > longest:
        raise ModelLoadError(f"--max-model-len {wanted} is more than the model's {longest}")
    return wanted


def max_step_seconds(
    device: str, config: EngineConfig, default: Mapping[str, float | None] = DEFAULT_MAX_STEP_MS
) -> float | None:
    """The longest duration that a step should have; None is without limit.

    ``default`` has the milliseconds by device.
    """
    max_step_ms = config.max_step_ms or default[device]
    return None if max_step_ms is None else max_step_ms / 1000


def _max_num_batched_tokens(device: str, config: EngineConfig) -> int:
    wanted = config.max_num_batched_tokens
    if wanted is None:
        return max(DEFAULT_MAX_NUM_BATCHED_TOKENS[device], config.max_num_seqs)
    if wanted < config.max_num_seqs:
        raise ModelLoadError(
            f"--max-num-batched-tokens {wanted} is less than --max-num-seqs {config.max_num_seqs}"
        )
    return wanted


_FULL = "full_attention"

_ATTENTION_RATE = 2 / 3
"""Attention's operations per second, as a part of those of products with weights. Measured on a
CPU: 0.8 with heads of 128, half with heads of 64."""


def keys_per_row(config: Any) -> float:
    """Return the keys whose attention costs a prompt's token as much as all its products do.

    ``config`` is that of the text model. Only layers that attend to everything count: a window
    costs a late token no more than others. Without the usual sizes attention counts nothing.
    """
    layers = layer_configs(config)
    widths = [_width(layer) for layer in layers]
    if not all(widths):
        return math.inf
    elements = sum(map(_elements, layers)) / len(layers)
    kinds = getattr(config, "layer_types", None) or [_kind(layer) for layer in layers]
    if len(layers) == 1:
        widths *= len(kinds)
    full = [width for width, kind in zip(widths, kinds, strict=False) if kind == _FULL]
    if not full:
        return math.inf
    return _ATTENTION_RATE * 2 * elements / (4 * sum(full) / len(kinds))


def _width(layer: Any) -> int:
    """The columns of all heads; 0 without the usual sizes."""
    hidden, heads = number(layer, "hidden_size"), number(layer, "num_attention_heads")
    if not hidden or not heads or hidden < heads:
        return 0
    return heads * (number(layer, "head_dim") or hidden // heads)


def _elements(layer: Any) -> int:
    """Number of elements of the matrices that a token is multiplied by."""
    hidden, heads = number(layer, "hidden_size"), number(layer, "num_attention_heads")
    key_heads = number(layer, "num_key_value_heads") or heads
    inner = number(layer, "moe_intermediate_size") or number(layer, "intermediate_size")
    inner *= number(layer, "num_experts_per_tok") or 1
    matrices = 3 * inner if inner else 2 * 4 * hidden  # gated, or as GPT-2's
    return hidden * (2 * (heads + key_heads) * (_width(layer) // heads) + matrices)


def _kind(layer: Any) -> str:
    has_window = number(layer, "sliding_window") and getattr(layer, "use_sliding_window", True)
    return "sliding_attention" if has_window else _FULL
